//! Isolation of programs (seed 001, T1 and T2): a child's process, memory, files and prompts
//! contain nothing of its parent, and the reverse; neither contains anything of the worker.

use domain::subject::Filter;
use serde_json::{Value, json};
use trellis_tests::{
    processes::{Processes, Shape, fresh_trace},
    servers::{ModelServer, Prompt},
};

use super::crash::paid;
use crate::agents::{finished, say};

/// `look()`: all markers in its input, its environment, all files it can read, the processes it
/// sees with their memory, and its own memory.
pub(super) const LOOK: &str = r#"
import os, re
def read(path):
    try:
        with open(path, "rb") as file: return file.read()
    except OSError:
        return b""
def memory(pid):
    parts = []
    try:
        with open("/proc/%s/mem" % pid, "rb", 0) as mem:
            for line in open("/proc/%s/maps" % pid):
                first, last = (int(at, 16) for at in line.split()[0].split("-"))
                if "r" in line.split()[1] and last - first < 64 << 20:
                    try:
                        mem.seek(first)
                        parts.append(mem.read(last - first))
                    except (OSError, OverflowError, ValueError):
                        pass
    except OSError:
        pass
    return b"".join(parts)
def look():
    seen = [json.dumps(start).encode(), repr(os.environ).encode()]
    for place in [".", "../../../..", "/tmp", os.environ["HOME"]]:
        for where, _, names in os.walk(place):
            seen += [where.encode()] + [read(os.path.join(where, name)) for name in names]
    for pid in [pid for pid in os.listdir("/proc") if pid.isdigit()] + ["self"]:
        seen += [read("/proc/%s/%s" % (pid, name)) for name in ["environ", "cmdline"]] + [memory(pid)]
    found = set()
    for part in seen:
        found |= {match.decode() for match in re.findall(rb"(?:parent|child|worker|key|own)-marker-[0-9a-f]{32}", part)}
    return sorted(found)
"#;

/// Writes its marker to every place it can, and sends its findings to its model; the parent spawns
/// a child in between.
const MARKED: &str = r#"
def model(text):
    return ask(type="model", id="m", messages=[{"role": "user", "content": text}])["text"]
def tool(name, **arguments):
    answer = ask(type="tool", id="t", tool=name, arguments=arguments)
    assert not answer["is_error"], answer
    return answer["text"]
own = os.environ["OWN"]
for name in ["outputs/own.txt", "own.txt", "tmp/own.txt"]:
    open(name, "w").write(own)
tool("fs.write", path="outputs/large.txt", content=(own + "\n") * 200)
assert own in tool("fs.read", path="outputs/large.txt")
model("remember " + own)
child = tool("spawn", goal="follow up on it", agent_id="follower") if start["goal"] == "lead" else None
model("%s found %s" % (start["goal"], json.dumps(look())))
say(type="result", result=child or "followed")
"#;

pub(super) fn marker(whose: &str) -> String {
    format!("{whose}-marker-{}", fresh_trace().to_string().replace('-', ""))
}

fn marked(agent_id: &str, own: &str) -> Value {
    let mut agent = paid(agent_id, &format!("{LOOK}{MARKED}"));
    agent["env"] = json!({"OWN": own});
    agent
}

/// The markers that the agent with this goal sent to its model.
pub(super) fn found(model: &ModelServer, goal: &str) -> Value {
    let told = format!("{goal} found ");
    let prompts = model.prompts();
    let of_goal =
        prompts.iter().filter_map(|prompt| prompt["messages"][0]["content"].as_str()?.strip_prefix(&told));
    let [found] = of_goal.collect::<Vec<_>>()[..] else {
        panic!("not exactly one prompt with the findings of {goal}: {prompts:#?}")
    };
    serde_json::from_str(found).unwrap()
}

/// The number of processes with this text in their environment, as far as this process may read it.
fn environments_with(word: &str) -> usize {
    let listed = std::fs::read_dir("/proc").unwrap().flatten();
    let environment =
        |entry: std::fs::DirEntry| std::fs::read(entry.path().join("environ")).unwrap_or_default();
    listed.map(environment).filter(|text| String::from_utf8_lossy(text).contains(word)).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn i1_i2_nothing_of_a_parent_program_is_in_its_child_and_the_other_way_round() {
    let model = ModelServer::start(|_: &Prompt| say("noted")).await;
    let (parents, childs, workers) = (marker("parent"), marker("child"), marker("worker"));
    let settings = model.settings();
    let environment = vec![("OF_THE_WORKER".to_owned(), workers.clone())];
    let cluster = Processes::start_as(|| Shape { worker: settings, environment, ..Shape::new(1, 1) }).await;
    cluster.apply(json!([marked("leader", &parents), marked("follower", &childs)])).await;
    assert_eq!(environments_with(&workers), 1, "only the worker's environment has the marker");
    let inputs = json!({"secret": format!("{parents} in an input")});
    let run = cluster.begin(json!({"goal": "lead", "agent_id": "leader", "inputs": inputs})).await;
    let (outcome, trace) = finished(&cluster, run).await;
    assert_eq!(
        (&outcome["status"], &outcome["result"]),
        (&json!("completed"), &json!("followed")),
        "{outcome:#}"
    );
    assert_eq!(trace.contexts().len(), 2);
    // Each finds its own marker, so the search would also have found the other's.
    assert_eq!(found(&model, "lead"), json!([parents]));
    assert_eq!(found(&model, "follow up on it"), json!([childs]));
    for stored in cluster.client.bus.read(&Filter::HistoriesOf(run)).await.unwrap() {
        let text = String::from_utf8_lossy(&stored.payload).into_owned();
        let other = if stored.subject.to_string().ends_with(".root") { &childs } else { &parents };
        assert!(!text.contains(other) && !text.contains(&workers), "{}: {text}", stored.subject);
    }
    for prompt in model.prompts() {
        let text = prompt.to_string();
        assert!(!text.contains(&workers), "{text}");
        assert!(!text.contains(&parents) || !text.contains(&childs), "{text}");
    }
    assert!(!outcome.to_string().contains(&childs), "{outcome}");
}
