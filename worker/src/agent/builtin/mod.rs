//! The agents that are part of the worker, for demonstrations, tests and measurements. They need no model and no keys.
//! Their parameters are the context's inputs; unknown inputs are ignored.

mod ask;
mod basic;
mod chain;
mod crash;
mod parameters;
mod share;
mod spend;
mod tree;

use domain::{problem::nearest, wire::Verdict};
use parameters::Parameters;

use super::{
    run::Run,
    verdict::{failed, goal},
};

/// Each agent's description and parameters, shown in the documentation and with the error for an
/// invalid parameter.
pub const HELP: [(&str, &str); 10] = [
    ("echo", "answers with its goal"),
    ("sleep", "waits, then answers with its goal\n  ms  the wait in milliseconds (1000)"),
    (
        "fail",
        "fails, then answers with its goal\n  times      how many attempts fail (all)\n  message    the \
         error (\"failed as requested\")\n  retryable  true if another attempt may follow (true)",
    ),
    (
        "spend",
        "makes paid calls: hold, wait, settle\n  usd       what a call costs (0.01)\n  tokens    what it \
         uses (100)\n  calls     how many (1)\n  ms        how long one takes (0)\n  hold_usd  how much \
         is held for a call (usd)",
    ),
    (
        "tree",
        "spawns children, waits for them and counts the leaves\n  depth  levels below it (2)\n  width  \
         children of each (3)\n  leaf   the agent at the bottom (\"echo\")\n  usd    an input of each leaf",
    ),
    ("chain", "hands over to a child, which hands over to the next\n  length  the number of contexts (3)"),
    ("crash", "aborts its worker process, then answers with its goal\n  times  how many attempts crash (1)"),
    ("ask", "asks a human and answers with the answer\n  question  what it asks (its goal)"),
    (
        "share",
        "writes a value into the shared store, and reads every value it may read\n  key    the key (\"<child_id>.note\")\n  \
         value  the value (its goal)",
    ),
    ("panic", "panics, to show how a worker handles a broken agent"),
];

#[derive(Debug, Clone, Copy)]
enum BuiltinAgent {
    Echo,
    Sleep,
    Fail,
    Spend,
    Tree,
    Chain,
    Crash,
    Ask,
    Share,
    Panic,
}

impl BuiltinAgent {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "echo" => BuiltinAgent::Echo,
            "sleep" => BuiltinAgent::Sleep,
            "fail" => BuiltinAgent::Fail,
            "spend" => BuiltinAgent::Spend,
            "tree" => BuiltinAgent::Tree,
            "chain" => BuiltinAgent::Chain,
            "crash" => BuiltinAgent::Crash,
            "ask" => BuiltinAgent::Ask,
            "share" => BuiltinAgent::Share,
            "panic" => BuiltinAgent::Panic,
            _ => return None,
        })
    }
}

pub(super) async fn run(run: &Run<'_>) -> Verdict {
    let name = run.work().agent.builtin.as_deref().unwrap_or_default();
    let Some(builtin) = BuiltinAgent::named(name) else { return unknown_agent(name) };
    let parameters = Parameters(&run.work().inputs);
    let verdict = match builtin {
        BuiltinAgent::Echo => Ok(goal(run.work())),
        BuiltinAgent::Sleep => basic::sleep(run, parameters).await,
        BuiltinAgent::Fail => basic::fail(run, parameters),
        BuiltinAgent::Spend => spend::run(run, parameters).await,
        BuiltinAgent::Tree => tree::run(run, parameters).await,
        BuiltinAgent::Chain => chain::run(run, parameters).await,
        BuiltinAgent::Crash => crash::run(run, parameters),
        BuiltinAgent::Ask => ask::run(run, parameters),
        BuiltinAgent::Share => share::run(run, parameters).await,
        BuiltinAgent::Panic => basic::panic(run),
    };
    verdict.unwrap_or_else(|bad| failed(format!("{bad}\n\n{}", help(name))))
}

fn help(name: &str) -> String {
    let text = HELP.iter().find(|(known, _)| *known == name).map_or("", |(_, text)| *text);
    format!("{name}: {text}")
}

fn unknown_agent(name: &str) -> Verdict {
    let names = || HELP.iter().map(|(name, _)| *name);
    let hint = nearest(name, names()).map(|near| format!("\n\nhint: did you mean `{near}`?"));
    let all = names().collect::<Vec<_>>().join(", ");
    failed(format!("no built-in agent `{name}`; there are {all}{}", hint.unwrap_or_default()))
}
