//! Programs that use more than their limits. None is dangerous without the sandbox: each stops by
//! itself a little above the limit.

use domain::wire::EndStatus;
use serde_json::json;

use super::{apply, cluster, error, pool, python, result};

#[tokio::test(flavor = "multi_thread")]
async fn i4_f04_bombs_are_stopped_and_the_failure_names_the_limit() {
    let cluster = cluster(&[&[]]);
    let agent = |id: &str, script: &str| {
        json!({"agent_id": id, "kind": "command", "command": ["sh", "-c", script],
            "resources": {"processes": 20, "cpu_seconds": 1}})
    };
    apply(
        &cluster.client,
        vec![
            agent("forks", "for i in $(seq 60); do sleep 5 & done; wait; echo survived"),
            agent(
                "disk",
                "for i in 1 2 3 4 5; do head -c 60000000 /dev/zero > $i; done; sleep 5; echo survived",
            ),
            agent("processor", "while :; do :; done"),
            agent("quiet", "sleep 0; echo survived"),
        ],
    )
    .await;
    let run = async |id: &str| cluster.client.run(json!({"goal": "go", "agent_id": id})).await;
    for (id, says) in [
        ("forks", "more than resources.processes = 20; raise `resources.processes`"),
        ("disk", "its workspace holds"),
    ] {
        let outcome = run(id).await;
        assert_eq!(outcome.context.status, EndStatus::Failed, "{id}");
        assert!(error(&outcome).contains(says), "{id}: {}", error(&outcome));
    }
    let outcome = run("processor").await;
    assert!(error(&outcome).contains("was ended by signal"), "{}", error(&outcome));
    assert_eq!(result(&run("quiet").await), "survived");
    cluster.stop().await;
}

/// Forks children that each do this, and waits for them.
const FORKS: &str = r#"
import mmap, os, time, ctypes
def all_do(count, what):
    for _ in range(count):
        if os.fork() == 0:
            what()
            os._exit(0)
    for _ in range(count): os.wait()
    say(type="result", result="survived")
"#;

/// Each process of a program is within its limits; all together are not. They stop by themselves a
/// little above.
const TOGETHER: [(&str, &str, &str); 10] = [
    (
        "memory",
        "def what():\n  kept = bytearray(os.urandom(1) * (60 << 20)); time.sleep(5)\nall_do(6, what)",
        "bytes of memory together, more than resources.memory_bytes = 201326592",
    ),
    (
        "processor",
        "def what():\n  until = time.process_time() + 0.9\n  while time.process_time() < until: pass\nall_do(8, what)",
        "s of processor time together, more than resources.cpu_seconds = 1",
    ),
    (
        "deleted-files",
        "kept = []\nfor i in range(6):\n  kept.append(open('f', 'wb')); kept[-1].write(bytes(60 << 20)); kept[-1].flush(); \
         os.remove('f')\ntime.sleep(5); all_do(0, None)",
        "of them in deleted files, more than the 268435456 allowed",
    ),
    (
        "mapped-files",
        "libc = ctypes.CDLL(None); libc.mmap.restype = ctypes.c_void_p\nfor i in range(6):\n  f = open('f', 'wb+'); \
         f.write(bytes(60 << 20)); f.flush(); libc.mmap(None, 4096, 1, 1, f.fileno(), ctypes.c_long(0)); f.close(); \
         os.remove('f')\ntime.sleep(5); all_do(0, None)",
        "of them in deleted files, more than the 268435456 allowed",
    ),
    (
        "long-paths",
        "for _ in range(18): os.mkdir('d' * 250); os.chdir('d' * 250)\nfor i in range(5):\n  open(str(i), 'wb').write(bytes(60 << \
         20))\ntime.sleep(5); all_do(0, None)",
        "the files of its workspace can't be counted",
    ),
    (
        "sockets",
        "import socket\ndef what():\n  kept = [socket.socketpair() for _ in range(100)]; time.sleep(5)\nall_do(8, what)",
        "bytes of memory together, more than resources.memory_bytes = 201326592",
    ),
    (
        "threads",
        "import threading\nthreading.stack_size(65536); end = threading.Event()\ntry:\n  for _ in range(400): \
         threading.Thread(target=end.wait, daemon=True).start()\nexcept RuntimeError: sys.exit('no more threads together')\n\
         time.sleep(5); all_do(0, None)",
        "threads together",
    ),
    (
        "forgotten-children",
        "import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\nfor _ in range(6):\n  if os.fork() == 0:\n    until = \
         time.process_time() + 0.9\n    while time.process_time() < until: pass\n    os._exit(0)\n  try: os.wait()\n  except \
         ChildProcessError: pass\nall_do(0, None)",
        "s of processor time together, more than resources.cpu_seconds = 1",
    ),
    // Programs with network access can send open files over a socket; a file in transit belongs to
    // no process.
    (
        "sent-files",
        "import socket\nto, kept = socket.socketpair()\nfor i in range(6):\n  f = open('f', 'wb'); f.write(bytes(60 << 20)); f.flush(); \
         socket.send_fds(to, [b'x'], [f.fileno()]); f.close(); os.remove('f')\ntime.sleep(5); all_do(0, None)",
        "of them in deleted files, more than the 268435456 allowed",
    ),
    // Pages that processes share are counted once.
    ("shared", "kept = bytearray(os.urandom(1) * (60 << 20))\nall_do(6, lambda: time.sleep(1))", ""),
];

/// Without a pid namespace the watch must search for the processes.
#[tokio::test(flavor = "multi_thread")]
async fn s4_the_processes_of_a_program_are_bounded_together() {
    let sets: [&[&str]; 2] = [&[], &["pid_namespace", "network_namespace"]];
    let cluster = cluster(&sets);
    let mut wrong = Vec::new();
    for (id, body, says) in TOGETHER {
        for without in sets {
            let mut agent = python(id, &format!("{FORKS}{body}"));
            agent["pool"] = json!(pool(without));
            agent["network"] = json!(id == "sent-files");
            agent["resources"] = json!({"processes": 20, "cpu_seconds": 1, "memory_bytes": 192 << 20});
            apply(&cluster.client, vec![agent]).await;
            let outcome = cluster.client.run(json!({"goal": "go", "agent_id": id})).await;
            let said = match outcome.context.status {
                EndStatus::Completed => String::new(),
                _ => error(&outcome),
            };
            if says.is_empty() != said.is_empty() || !said.contains(says) {
                wrong.push(format!("{id} without {without:?}: {said}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    cluster.stop().await;
}
