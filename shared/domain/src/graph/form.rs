//! The form of a question to a human (G7): the valid answers, the reminders, and the result without
//! an answer.

use serde::{Deserialize, Serialize};

use super::OutputSchema;
use crate::{json::Json, limits::MAX_TIMEOUT_MS, problem::Problems, terms::Text, wording};

/// The most reminders of one question.
pub const MAX_REMINDERS: u32 = 10;
const MAX_CHOICES: usize = 50;
const MAX_CHOICE_BYTES: usize = 1_000;
/// Each context that asks has its own copy of the choices.
const MAX_CHOICES_BYTES: usize = 8 * 1024;
const MAX_WHO_BYTES: usize = 256;
/// Each reminder is a commit and a message to all listeners.
const MIN_REMIND_MS: u64 = 1_000;
/// The most mistakes of one answer that are listed.
const MAX_MISTAKES: usize = 20;

/// The answer that approves. It is the result of an `approve` step without choices of its own.
pub(super) const APPROVE: &str = "approve";
pub(super) const DENY: &str = "deny";
const YES: [&str; 7] = [APPROVE, "approved", "yes", "y", "ok", "allow", "allowed"];
const NO: [&str; 6] = [DENY, "denied", "no", "n", "reject", "rejected"];

/// The valid answers to a question, and the result without an answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Form {
    /// The people who should answer; for people to read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub who: Option<Text>,
    /// The answers to choose from. Empty: any text.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<Text>,
    /// A JSON Schema of the answer. The answer's text is read as JSON, or as a string if it is not
    /// JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<OutputSchema>,
    /// The longest wait for an answer, from the time of the question. Then the asking context
    /// fails, unless there is a `default`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// The answer if none was given in time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<Text>,
    /// The time between reminders, of which there are at most ten.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remind_every_ms: Option<u64>,
    /// True for the question of an `approve` step. `deny` and `deny: REASON` deny. Each of the
    /// choices approves, or `approve` if there are no choices.
    #[serde(skip_serializing_if = "is_false")]
    pub approval: bool,
}

/// The meaning of an answer to an `approve` step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Approval {
    /// Approved, with this result.
    Approved(Text),
    /// Denied, with a reason if the answer has one.
    Denied(Option<String>),
}

impl Form {
    /// Returns true if any text is an answer and the wait has no limit.
    pub fn is_plain(&self) -> bool {
        *self == Form::default()
    }

    /// Adds the problems of the form itself.
    pub fn check(&self, path: &str, problems: &mut Problems) {
        let at = |field: &str| if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") };
        if self.who.as_ref().is_some_and(|who| who.as_str().len() > MAX_WHO_BYTES) {
            problems.add(at("who"), format!("it has at most {MAX_WHO_BYTES} bytes"), None);
        }
        self.check_choices(&at, problems);
        if let Some(Err(why)) = self.schema.as_ref().map(OutputSchema::usable) {
            problems.add(at("schema"), why, None);
        }
        for (field, given) in [("timeout_ms", self.timeout_ms), ("remind_every_ms", self.remind_every_ms)] {
            if given.is_some_and(|ms| ms > MAX_TIMEOUT_MS) {
                problems.add(at(field), format!("it is at most a year ({MAX_TIMEOUT_MS} ms)"), None);
            }
        }
        if self.timeout_ms == Some(0) {
            let hint = "leave it out to wait without end";
            problems.add(at("timeout_ms"), "0 ms leaves no time for an answer", Some(hint.into()));
        }
        if self.remind_every_ms.is_some_and(|ms| ms < MIN_REMIND_MS) {
            problems.add(at("remind_every_ms"), format!("it is at least {MIN_REMIND_MS} ms"), None);
        }
        let Some(default) = &self.default else { return };
        if self.timeout_ms.is_none() {
            let hint = "the default is the answer after that time";
            problems.add(at("default"), "a default needs `timeout_ms`", Some(hint.into()));
        }
        if let Err(mistakes) = self.check_answer(default) {
            let mistakes = mistakes.iter().map(|mistake| mistake.message.as_str()).collect::<Vec<_>>();
            problems.add(at("default"), format!("it would be refused: {}", mistakes.join("; ")), None);
        }
    }

    fn check_choices(&self, at: &impl Fn(&str) -> String, problems: &mut Problems) {
        let choices = &self.choices;
        if choices.len() > MAX_CHOICES {
            problems.add(at("choices"), format!("there are at most {MAX_CHOICES} choices"), None);
        }
        if choices.iter().map(|choice| choice.as_str().len()).sum::<usize>() > MAX_CHOICES_BYTES {
            let message = format!("all choices together have at most {MAX_CHOICES_BYTES} bytes");
            problems.add(at("choices"), message, None);
        }
        if !choices.is_empty() && self.schema.is_some() {
            let hint = "an `enum` in the schema lists choices too";
            problems.add(at("schema"), "a question has `choices` or a `schema`, not both", Some(hint.into()));
        }
        for (i, choice) in choices.iter().enumerate() {
            let path = at(&format!("choices[{i}]"));
            if choice.as_str().len() > MAX_CHOICE_BYTES {
                problems.add(&path, format!("a choice has at most {MAX_CHOICE_BYTES} bytes"), None);
            }
            if choices[..i].iter().any(|other| is_same(other.as_str(), choice.as_str())) {
                problems.add(&path, format!("`{choice}` is there twice"), None);
            }
            if self.approval && NO.iter().any(|no| is_same(no, choice.as_str())) {
                let hint = "it always denies; list only what approves";
                problems.add(&path, format!("`{choice}` can't be a choice"), Some(hint.into()));
            }
        }
    }

    /// Checks an answer. If it is invalid, returns all its mistakes.
    pub fn check_answer(&self, answer: &Text) -> Result<(), Problems> {
        let wrong = |message: &str, hint: String| Err(Problems::one("answer", message, Some(hint)));
        if self.approval {
            return match self.approval(answer) {
                Some(_) => Ok(()),
                None => wrong("it neither approves nor denies", format!("answer {}", self.expected())),
            };
        }
        if !self.choices.is_empty() && !self.choices.iter().any(|choice| choice == answer) {
            return wrong("it is not one of the choices", format!("answer {}", self.expected()));
        }
        let Some(schema) = &self.schema else { return Ok(()) };
        let mut problems = Problems::default();
        for (path, message) in schema.mistakes(&as_json(answer), MAX_MISTAKES) {
            problems.add(format!("answer{path}"), message, None);
        }
        problems.or(())
    }

    /// Returns the meaning of an answer to an `approve` step, or `None` if it neither approves nor
    /// denies.
    pub fn approval(&self, answer: &Text) -> Option<Approval> {
        let said = answer.as_str().trim();
        let chosen = self.choices.iter().find(|choice| is_same(choice.as_str(), said));
        if let Some(choice) = chosen {
            return Some(Approval::Approved(choice.clone()));
        }
        let (word, why) = said.split_once(':').map_or((said, None), |(word, why)| (word, Some(why.trim())));
        let is_one_of = |words: &[&str]| words.iter().any(|known| is_same(known, word));
        if is_one_of(&NO) {
            return Some(Approval::Denied(why.filter(|why| !why.is_empty()).map(str::to_owned)));
        }
        let approves = self.choices.is_empty() && is_one_of(&YES);
        approves.then(|| Approval::Approved(Text::new(APPROVE).expect("a valid literal")))
    }

    /// Describes the valid answers.
    pub fn expected(&self) -> String {
        let mut listed: Vec<String> = self.choices.iter().map(|choice| format!("`{choice}`")).collect();
        if self.approval && listed.is_empty() {
            listed.push(format!("`{APPROVE}`"));
        }
        if self.approval {
            listed.push(format!("`{DENY}` or `{DENY}: REASON`"));
        }
        match &self.schema {
            Some(schema) => {
                let schema = wording::cut(schema.schema().to_text(), MAX_CHOICE_BYTES);
                format!("with JSON that fits {schema}")
            }
            None if listed.is_empty() => "with any text".into(),
            None => format!("one of {}", listed.join(", ")),
        }
    }
}

fn is_same(one: &str, other: &str) -> bool {
    one.trim().trim_end_matches(['.', '!']).eq_ignore_ascii_case(other.trim().trim_end_matches(['.', '!']))
}

fn as_json(answer: &Text) -> Json {
    serde_json::from_str(answer.as_str()).unwrap_or_else(|_| Json::from(answer.as_str()))
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's skip_serializing_if takes a reference")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Text {
        Text::new(text).unwrap()
    }

    fn form(json: serde_json::Value) -> Form {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn g7_an_answer_is_one_of_the_choices() {
        let form = form(serde_json::json!({"choices": ["red", "blue"]}));
        assert!(form.check_answer(&text("red")).is_ok());
        let mistakes = form.check_answer(&text("green")).unwrap_err();
        assert_eq!(
            mistakes.to_string(),
            "answer: it is not one of the choices\n  hint: answer one of `red`, `blue`"
        );
    }

    #[test]
    fn g7_an_answer_fits_the_schema_and_every_mistake_is_named() {
        let schema = serde_json::json!({"type": "object", "required": ["days"], "additionalProperties": false,
            "properties": {"days": {"type": "integer", "minimum": 1}, "why": {"type": "string"}}});
        let form = form(serde_json::json!({"schema": schema}));
        assert!(form.check_answer(&text(r#"{"days": 3}"#)).is_ok());
        let mistakes = form.check_answer(&text(r#"{"days": 0, "why": 5}"#)).unwrap_err();
        assert_eq!(mistakes.iter().count(), 2, "{mistakes}");
        assert!(form.check_answer(&text("soon")).is_err());
    }

    #[test]
    fn g7_words_approve_and_deny() {
        let plain = form(serde_json::json!({"approval": true}));
        let approved = |word: &str| Some(Approval::Approved(text(word)));
        for yes in ["approve", "Yes.", " OK "] {
            assert_eq!(plain.approval(&text(yes)), approved("approve"), "{yes}");
        }
        assert_eq!(plain.approval(&text("deny")), Some(Approval::Denied(None)));
        let why = Some(Approval::Denied(Some("too dear".into())));
        assert_eq!(plain.approval(&text("No: too dear")), why);
        assert_eq!(plain.approval(&text("perhaps")), None);
        let chosen = form(serde_json::json!({"approval": true, "choices": ["now", "tomorrow"]}));
        assert_eq!(chosen.approval(&text("Tomorrow")), approved("tomorrow"));
        assert_eq!(
            (chosen.approval(&text("yes")), chosen.approval(&text("no: why?"))),
            (None, Some(Approval::Denied(Some("why?".into()))))
        );
    }

    #[test]
    fn g7_an_unanswerable_form_is_refused_with_all_its_mistakes() {
        let form = form(
            serde_json::json!({"choices": ["a", "A"], "schema": {}, "timeout_ms": 0, "remind_every_ms": 5,
            "default": "b", "who": "x".repeat(300)}),
        );
        let mut problems = Problems::default();
        form.check("f", &mut problems);
        let paths: Vec<&str> = problems.iter().map(|problem| problem.path.as_str()).collect();
        assert_eq!(
            paths,
            ["f.who", "f.schema", "f.choices[1]", "f.timeout_ms", "f.remind_every_ms", "f.default"]
        );
    }
}
