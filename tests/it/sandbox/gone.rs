//! No process or file of a program outlives its attempt, in every way that the attempt can end; and
//! a program can see nothing of the worker.

use domain::wire::EndStatus;
use nix::{
    fcntl::{FcntlArg, FdFlag, fcntl},
    unistd::Pid,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    net::TcpListener,
};
use trellis_tests::{
    cluster::{SOON, eventually},
    processes::{Processes, fresh_trace},
};

use super::{Directory, apply, cluster, pids_with, processes_with, python, result};

/// Ignores signals, as does a child process in a separate session; both have a word in their
/// command lines.
const STUBBORN: &str = r#"
trap '' TERM
setsid sh -c 'trap "" TERM; while :; do sleep 1; done' "$0" &
while :; do sleep 1; done
"#;

fn stubborn(word: &str, pool: &str) -> Value {
    json!({"agent_id": "stubborn", "kind": "command", "command": ["sh", "-c", STUBBORN, word], "pool": pool})
}

#[tokio::test(flavor = "multi_thread")]
async fn i4_f04_a_cancelled_program_that_ignores_it_is_gone_with_all_its_sessions() {
    // The second worker has no pid namespace, and must search for the processes.
    let cluster = cluster(&[&[], &["pid_namespace"]]);
    for pool in ["default", "pid_namespace"] {
        let word = format!("stubborn-{}", fresh_trace());
        apply(&cluster.client, vec![stubborn(&word, pool)]).await;
        let accepted = cluster.client.accepted(json!({"goal": "stay", "agent_id": "stubborn"})).await;
        eventually("both processes run", async || processes_with(&word) >= 2).await;
        let cancel = json!({"trace_id": accepted.trace_id});
        cluster.client.publish(domain::subject::Subject::Cancel, &cancel).await;
        let outcome = cluster.client.outcome(accepted.trace_id, &accepted.child_id).await;
        assert_eq!(outcome.context.status, EndStatus::Cancelled);
        eventually("gone", async || processes_with(&word) == 0).await;
    }
    cluster.stop().await;
}

/// proves: a helper that fails to end its program, here because it is stopped, is itself killed
/// with all its descendants.
#[tokio::test(flavor = "multi_thread")]
async fn s4_a_helper_that_does_not_end_is_killed_with_its_program() {
    let cluster = cluster(&[&[], &["pid_namespace"]]);
    for pool in ["default", "pid_namespace"] {
        let word = format!("stopped-{}", fresh_trace());
        apply(&cluster.client, vec![stubborn(&word, pool)]).await;
        let accepted = cluster.client.accepted(json!({"goal": "stay", "agent_id": "stubborn"})).await;
        eventually("both processes run", async || processes_with(&word) >= 2).await;
        nix::sys::signal::kill(helper_of(pids_with(&word)[0]), nix::sys::signal::Signal::SIGSTOP).unwrap();
        let cancel = json!({"trace_id": accepted.trace_id});
        cluster.client.publish(domain::subject::Subject::Cancel, &cancel).await;
        let outcome = cluster.client.outcome(accepted.trace_id, &accepted.child_id).await;
        assert_eq!(outcome.context.status, EndStatus::Cancelled);
        eventually("gone", async || processes_with(&word) == 0).await;
    }
    cluster.stop().await;
}

/// The ancestor of a process that is a child of this process.
fn helper_of(pid: Pid) -> Pid {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let parent = stat.rsplit_once(") ").unwrap().1.split(' ').nth(1).unwrap();
    let parent = Pid::from_raw(parent.parse().unwrap());
    if parent == Pid::this() { pid } else { helper_of(parent) }
}

#[tokio::test(flavor = "multi_thread")]
async fn i4_f04_a_worker_killed_outright_leaves_no_process_of_its_agents() {
    let mut cluster = Processes::start(1, 1).await;
    let word = format!("stubborn-{}", fresh_trace());
    apply(&cluster.client, vec![stubborn(&word, "default")]).await;
    let trace_id = cluster.begin(json!({"goal": "stay", "agent_id": "stubborn"})).await;
    eventually("both processes run", async || processes_with(&word) >= 2).await;
    cluster.kill("w1");
    eventually("gone", async || processes_with(&word) == 0).await;
    cluster.cancel(trace_id).await;
    cluster.outcome(trace_id).await;
}

/// Reports its workspace. On SIGTERM it waits half a second, writes a file there and reports
/// whether that worked.
const TIDY: &str = r#"
import os, signal, socket, time
out = socket.create_connection(("127.0.0.1", start["inputs"]["port"]))
# Without a buffer: the signal may come while the first line is being written.
def say(text): out.sendall((text + "\n").encode())
def tidy(*_):
    time.sleep(0.5)
    try:
        open("outputs/notes", "w").write("tidied")
        said = "tidied"
    except OSError as error:
        said = str(error)
    say(said)
    os._exit(0)
signal.signal(signal.SIGTERM, tidy)
say(os.getcwd())
while True: signal.pause()
"#;

#[tokio::test(flavor = "multi_thread")]
async fn i3_the_workspace_of_a_cancelled_program_stays_until_it_has_ended() {
    let cluster = cluster(&[&[]]);
    let mut tidy = python("tidy", TIDY);
    tidy["network"] = json!(true);
    apply(&cluster.client, vec![tidy]).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let inputs = json!({"port": listener.local_addr().unwrap().port()});
    let goal = json!({"goal": "stay", "agent_id": "tidy", "inputs": inputs});
    let accepted = cluster.client.accepted(goal).await;
    let hearing = async {
        let (stream, _) = listener.accept().await.unwrap();
        let mut lines = BufReader::new(stream).lines();
        let workspace = lines.next_line().await.unwrap().unwrap();
        assert!(std::path::Path::new(&workspace).exists());
        let cancel = json!({"trace_id": accepted.trace_id});
        cluster.client.publish(domain::subject::Subject::Cancel, &cancel).await;
        (workspace, lines.next_line().await.unwrap())
    };
    let (workspace, said) = tokio::time::timeout(SOON, hearing).await.expect("the program's message arrives");
    assert_eq!(said.as_deref(), Some("tidied"));
    eventually("removed", async || !std::path::Path::new(&workspace).exists()).await;
    cluster.stop().await;
}

/// All information that a program can read about itself, as text.
const INSIDE: &str = r#"
import json, os, sys
start = sys.stdin.readline()
files = []
for where, _, names in os.walk("."):
    for name in names:
        files.append(os.path.join(where, name) + ": " + open(os.path.join(where, name), errors="replace").read())
fds = {fd: os.readlink("/proc/self/fd/" + fd) for fd in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + fd)}
processes = [open("/proc/%s/cmdline" % p).read() for p in os.listdir("/proc") if p.isdigit()]
print(json.dumps({"type": "result", "result": {"start": start, "env": dict(os.environ), "files": files, "fds": fds,
    "processes": processes, "mounts": os.getcwd()}}))
"#;

#[tokio::test(flavor = "multi_thread")]
async fn i1_nothing_of_the_worker_or_the_parent_is_in_the_process_of_a_child() {
    let marker = format!("marker-{}", fresh_trace());
    let outside = Directory::new();
    let file = outside.path().join("of-the-parent");
    std::fs::write(&file, &marker).unwrap();
    // The marker is in the worker's memory, and in a file that it holds open without the
    // close-on-exec flag.
    let open = std::fs::File::open(&file).unwrap();
    fcntl(&open, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
    let cluster = cluster(&[&[]]);
    let inside = json!({
        "agent_id": "inside", "kind": "command", "command": ["python3", "-c", INSIDE], "env": {"GIVEN": "yes"},
    });
    let outer = json!({"agent_id": "outer", "kind": "builtin", "builtin": "echo"});
    apply(&cluster.client, vec![inside, outer]).await;
    let graph = json!({"steps": [
        {"id": "first", "agent_id": "outer", "task_description": marker, "output_to": "secret"},
        {"id": "second", "agent_id": "inside", "task_description": "look around", "depends_on": ["first"],
            "output_to": "found"},
    ]});
    let outcome = cluster.client.run(graph).await;
    assert_eq!(outcome.context.status, EndStatus::Completed, "{outcome:#?}");
    let found = outcome.outputs.iter().find(|(key, _)| key.as_str() == "found").unwrap().1.value().clone();
    let text = found.to_string();
    assert!(text.contains("look around"), "its own goal is missing: {text}");
    assert!(!text.contains(&marker), "{text}");
    let mut names: Vec<_> = found["env"].as_object().unwrap().keys().cloned().collect();
    names.retain(|name| name != "LC_CTYPE" && name != "PWD");
    assert_eq!(names, ["GIVEN", "HOME", "LANG", "PATH", "TMPDIR"]);
    let fds = found["fds"].as_object().unwrap();
    assert!(fds.values().all(|to| to.as_str().unwrap().starts_with("pipe:")), "{fds:?}");
    assert_eq!(fds.len(), 3, "{fds:?}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i4_a_secret_of_the_worker_can_not_be_named_by_a_profile() {
    let cluster = cluster(&[&[]]);
    let agent = |id: &str, name: &str| json!({"agent_id": id, "kind": "command", "command": ["env"], "env_from": [name]});
    apply(&cluster.client, vec![agent("thief", "OPENAI_API_KEY"), agent("guest", "PATH")]).await;
    let outcome = cluster.client.run(json!({"goal": "go", "agent_id": "thief"})).await;
    let said = super::error(&outcome);
    assert!(said.contains("`env_from` names `OPENAI_API_KEY`"), "{said}");
    let outcome = cluster.client.run(json!({"goal": "go", "agent_id": "guest"})).await;
    let text = result(&outcome);
    let own = format!("PATH={}\n", std::env::var_os("PATH").unwrap().into_string().unwrap());
    assert!(text.as_str().unwrap().contains(&own), "a variable without a secret is missing: {text}");
    cluster.stop().await;
}
