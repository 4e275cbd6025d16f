//! Fetches the parts of the work that were too large for the answer to a claim: inputs and answers
//! before the agent begins, and the result of a child when it is needed.

use domain::{
    ChildId,
    wire::{Answer, Ask, ChildResult, Execute, Failure, FailureKind, Part, PartName, Refusal},
};

use super::Attempt;

impl Attempt {
    /// Fetches the inputs and answers that were left out.
    pub(crate) async fn complete_work(&self) -> Result<(), Failure> {
        if self.work.left_out.inputs.is_empty() && self.work.left_out.answers == 0 {
            return Ok(());
        }
        let mut work = Execute::clone(&self.work);
        for key in std::mem::take(&mut work.left_out.inputs) {
            match self.part(PartName::Input(key.clone())).await? {
                Part::Input(value) => drop(work.inputs.insert(key, value)),
                Part::Child(_) | Part::Answer(_) => return Err(failed(&Refusal::unexpected("part"))),
            }
        }
        let mut answers = Vec::new();
        for number in 1..=std::mem::take(&mut work.left_out.answers) {
            match self.part(PartName::Answer(number)).await? {
                Part::Answer(given) => answers.push(given),
                Part::Child(_) | Part::Input(_) => return Err(failed(&Refusal::unexpected("part"))),
            }
        }
        work.answers.splice(..0, answers);
        self.work.set_complete(work);
        Ok(())
    }

    /// The result of a child; `None` if it has not ended or was never spawned.
    pub(crate) async fn child_result(&self, child_id: &ChildId) -> Result<Option<ChildResult>, Failure> {
        if let Some(ended) = self.work.children.iter().find(|child| child.child_id == *child_id) {
            return Ok(Some(ended.clone()));
        }
        if !self.work.left_out.children {
            return Ok(None);
        }
        match self.part(PartName::Child(child_id.clone())).await? {
            Part::Child(ended) => Ok(ended),
            Part::Input(_) | Part::Answer(_) => Err(failed(&Refusal::unexpected("part"))),
        }
    }

    async fn part(&self, part: PartName) -> Result<Part, Failure> {
        let answer = self.ask(Ask::Part { lease: self.token(), part }).await;
        let Answer::Part(part) = answer else { return Err(failed(&answer.into_refusal("part"))) };
        Ok(*part)
    }
}

fn failed(refusal: &Refusal) -> Failure {
    let message = format!("a part of the work could not be fetched: {}", refusal.message);
    Failure { kind: FailureKind::Refused, message, retryable: false }
}
