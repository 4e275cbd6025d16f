//! The agents that are part of the worker: for demonstrations, tests and measurements. They need no
//! model and no keys. Their parameters come from the context's inputs; inputs they don't know are
//! left alone.

mod ask;
mod basic;
mod chain;
mod crash;
mod parameters;
mod share;
mod spend;
mod tree;

use shared::{problem::nearest, wire::Verdict};

use super::{
    run::Run,
    verdict::{failed, goal},
};
use parameters::Parameters;

/// What each is and takes: in the documentation, and in the answer to a bad value.
pub const HELP: [(&str, &str); 10] = [
    ("echo", "answers with its goal"),
    ("sleep", "waits, then answers with its goal\n  ms  how long, in milliseconds (1000)"),
    (
        "fail",
        "fails, then answers with its goal\n  times      how many attempts fail (all)\n  message    what it \
         says (\"told to fail\")\n  retryable  whether another attempt may follow (true)",
    ),
    (
        "spend",
        "makes paid calls: hold, wait, settle\n  usd       what a call costs (0.01)\n  tokens    what it \
         uses (100)\n  calls     how many (1)\n  ms        how long one takes (0)\n  hold_usd  what is set \
         aside for it (usd)",
    ),
    (
        "tree",
        "spawns children, waits for them and counts the leaves\n  depth  levels beneath it (2)\n  width  \
         children of each (3)\n  leaf   the agent at the bottom (\"echo\")\n  usd    handed to each leaf",
    ),
    ("chain", "hands over to a child, and that to the next\n  length  contexts in all (3)"),
    (
        "crash",
        "takes its worker process down, then answers with its goal\n  times  how many attempts crash (1)",
    ),
    ("ask", "asks a human and answers with the answer\n  question  what it asks (its goal)"),
    (
        "share",
        "writes a value into the shared store, and reads what it may\n  key    where (\"<child_id>.note\")\n  \
         value  what (its goal)",
    ),
    ("panic", "panics: what a worker makes of a broken agent"),
];

#[derive(Debug, Clone, Copy)]
enum Builtin {
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

impl Builtin {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "echo" => Builtin::Echo,
            "sleep" => Builtin::Sleep,
            "fail" => Builtin::Fail,
            "spend" => Builtin::Spend,
            "tree" => Builtin::Tree,
            "chain" => Builtin::Chain,
            "crash" => Builtin::Crash,
            "ask" => Builtin::Ask,
            "share" => Builtin::Share,
            "panic" => Builtin::Panic,
            _ => return None,
        })
    }
}

pub(super) async fn run(run: &Run<'_>) -> Verdict {
    let name = run.work().agent.builtin.as_deref().unwrap_or_default();
    let Some(builtin) = Builtin::named(name) else { return unknown(name) };
    let parameters = Parameters(&run.work().inputs);
    let verdict = match builtin {
        Builtin::Echo => Ok(goal(run.work())),
        Builtin::Sleep => basic::sleep(run, parameters).await,
        Builtin::Fail => basic::fail(run, parameters),
        Builtin::Spend => spend::run(run, parameters).await,
        Builtin::Tree => tree::run(run, parameters).await,
        Builtin::Chain => chain::run(run, parameters).await,
        Builtin::Crash => crash::run(run, parameters),
        Builtin::Ask => ask::run(run, parameters),
        Builtin::Share => share::run(run, parameters).await,
        Builtin::Panic => basic::panic(run),
    };
    verdict.unwrap_or_else(|bad| failed(format!("{bad}\n\n{}", help(name))))
}

fn help(name: &str) -> String {
    let text = HELP.iter().find(|(known, _)| *known == name).map_or("", |(_, text)| *text);
    format!("{name}: {text}")
}

fn unknown(name: &str) -> Verdict {
    let names = || HELP.iter().map(|(name, _)| *name);
    let hint = nearest(name, names()).map(|near| format!("\n\nhint: did you mean `{near}`?"));
    let all = names().collect::<Vec<_>>().join(", ");
    failed(format!("no built-in agent `{name}`; there are {all}{}", hint.unwrap_or_default()))
}
