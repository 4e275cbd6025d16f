//! Queries about agents, and their changes: apply and delete. A second delivery is harmless: an
//! equal profile is not changed again.

use std::error::Error as _;

use domain::{
    AgentId, AgentProfile, Problems,
    agent_policy::as_written,
    limits::MAX_ORDER_BYTES,
    problem::nearest,
    wire::{QueryAnswer, Refusal},
};
use trace::unreadable;

use crate::{
    directory::{self, is_built_in},
    error_log,
    loops::Handles,
    profile_log,
};

pub(super) async fn all(handles: &Handles) -> Result<QueryAnswer, directory::Error> {
    handles.directory.refresh().await?;
    let (agents, versions) = handles.directory.all();
    Ok(QueryAnswer::Agents { agents, versions })
}

pub(super) async fn one(
    handles: &Handles,
    agent: AgentId,
    version: Option<u64>,
) -> Result<QueryAnswer, directory::Error> {
    handles.directory.refresh().await?;
    match handles.directory.version(&agent, version).await {
        Ok(Some(found)) => return Ok(QueryAnswer::Agent(Box::new(found))),
        Ok(None) => {}
        Err(directory::Error::Unreadable { agent, version }) => {
            let (message, hint) = unreadable(&agent, version);
            return Ok(refused(Problems::one("agent_id", message, Some(hint))));
        }
        Err(error) => return Err(error),
    }
    if version.is_some() && !handles.directory.known_of(&[agent.clone()].into()).profiles.is_empty() {
        let message = format!("there is no version {} of `{agent}`", version.unwrap_or_default());
        let hint = "`trellis agents show NAME` lists the versions that are kept";
        return Ok(refused(Problems::one("version", message, Some(hint.into()))));
    }
    Ok(unknown(handles, &agent))
}

pub(super) async fn apply(
    handles: &Handles,
    agents: Vec<AgentProfile>,
) -> Result<QueryAnswer, directory::Error> {
    if let Err(problems) = check(handles, &agents) {
        return Ok(refused(problems));
    }
    let names: Vec<AgentId> = agents.iter().map(|agent| agent.agent_id.clone()).collect();
    match handles.directory.apply(agents).await {
        Ok(applied) => Ok(QueryAnswer::Applied {
            agents: names,
            versions: applied.versions,
            unchanged: applied.unchanged,
        }),
        Err(error) => Ok(not_kept(&error)),
    }
}

pub(super) async fn delete(handles: &Handles, agent: AgentId) -> Result<QueryAnswer, directory::Error> {
    if is_built_in(&agent) {
        let hint = "apply another profile under this name, with `trellis agents apply`";
        let message = format!("`{agent}` is part of every deployment and can't be deleted");
        return Ok(refused(Problems::one("agent_id", message, Some(hint.into()))));
    }
    Ok(match handles.directory.delete(&agent).await {
        Ok(Some(at)) => QueryAnswer::Deleted { agent_id: agent, at },
        Ok(None) => unknown(handles, &agent),
        Err(error) => not_kept(&error),
    })
}

/// The answer if log or store could not be written: the change is not promised. A version that was
/// written is valid all the same, once the other one has it.
fn not_kept(error: &directory::Error) -> QueryAnswer {
    error_log::tell(error, None, "agent profiles could not be changed");
    let cause = error.source().map_or_else(String::new, |cause| format!(": {cause}"));
    let hint = if error.is_full() {
        "delete unused agents with `trellis agents delete NAME`, then repeat the command"
    } else {
        "repeat the same command; changes that are stored are not made again"
    };
    QueryAnswer::Refused(Refusal {
        message: format!("the change is not stored yet: {error}{cause}\n\nhint: {hint}"),
        ..Refusal::unavailable()
    })
}

fn unknown(handles: &Handles, agent: &AgentId) -> QueryAnswer {
    let (all, _) = handles.directory.all();
    let hint = match handles.directory.deleted_at(agent) {
        Some(at) => format!(
            "it was deleted at {at}; its versions are kept: `trellis agents show {agent} --version N`"
        ),
        None => match nearest(agent.as_str(), all.iter().map(|agent| agent.agent_id.as_str())) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => "`trellis agents list` shows all of them".into(),
        },
    };
    refused(Problems::one("agent_id", format!("there is no agent `{agent}`"), Some(hint)))
}

fn refused(problems: Problems) -> QueryAnswer {
    QueryAnswer::Refused(Refusal::invalid(&problems))
}

/// All problems of all profiles.
fn check(handles: &Handles, agents: &[AgentProfile]) -> Result<(), Problems> {
    let mut problems = Problems::default();
    for (index, agent) in agents.iter().enumerate() {
        let refused = handles.config.agent_policy.as_ref().map(|policy| policy.refuses(agent, &as_written));
        for problem in agent.check().err().iter().chain(&refused).flat_map(Problems::iter) {
            let path = format!("agents[{index}].{}", problem.path);
            problems.add(path, problem.message.clone(), problem.hint.clone());
        }
        if agents[..index].iter().any(|other| other.agent_id == agent.agent_id) {
            let message = format!("`{}` is given twice", agent.agent_id);
            problems.add(format!("agents[{index}].agent_id"), message, None);
        }
        let bytes = profile_log::payload(u64::MAX, Some(agent)).len();
        if bytes as u64 > MAX_ORDER_BYTES || !handles.bus.fits(bytes) {
            let message = format!("the profile has {bytes} bytes, more than a message can carry");
            let hint = "put long texts into files or inputs";
            problems.add(format!("agents[{index}]"), message, Some(hint.into()));
        }
    }
    problems.or(())
}
