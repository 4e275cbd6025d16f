//! Forbidden actions of a program and the sandbox layers that deny them. Each of these layers alone
//! denies the action; without all of them it succeeds.

use std::{
    net::{TcpListener, UdpSocket},
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixListener},
    },
};

use domain::wire::EndStatus;
use serde_json::{Value, json};

use super::{Directory, apply, cluster, error, pool, result};

const LAYERS: [&str; 5] = ["landlock", "seccomp", "rlimits", "pid_namespace", "network_namespace"];

struct Escape {
    name: &'static str,
    /// The body of a function; an `OSError` or a `MemoryError` is a denial.
    tries: &'static str,
    /// Each of these layers denies it. If the list is empty, the worker itself prevents the action,
    /// without any layer.
    denied_by: &'static [&'static str],
}

const ESCAPES: [Escape; 32] = [
    Escape { name: "absolute-path", tries: "return open(given['secret']).read()", denied_by: &["landlock"] },
    Escape {
        name: "parent-directories",
        tries: "return open(os.path.relpath(given['secret'])).read()",
        denied_by: &["landlock"],
    },
    Escape {
        name: "symbolic-link",
        tries: "os.symlink(given['secret'], 'link'); return open('link').read()",
        denied_by: &["landlock"],
    },
    Escape {
        name: "listing",
        tries: "return os.listdir(os.path.dirname(given['secret']))",
        denied_by: &["landlock"],
    },
    Escape {
        name: "hard-link",
        tries: "os.link(given['secret'], 'link'); return open('link').read()",
        denied_by: &["landlock", "pid_namespace"],
    },
    Escape {
        name: "writing-outside",
        tries: "return open(given['secret'], 'a').close()",
        denied_by: &["landlock", "pid_namespace"],
    },
    Escape {
        name: "changing-modes-outside",
        tries: "return os.chmod(given['secret'], 0o600)",
        denied_by: &["pid_namespace"],
    },
    Escape {
        name: "environment-of-the-worker",
        tries: "return open('/proc/%d/environ' % given['worker']).read(9)",
        denied_by: &[],
    },
    Escape {
        name: "memory-of-the-worker",
        tries: "return open('/proc/%d/mem' % given['worker'], 'rb').close()",
        denied_by: &[],
    },
    Escape { name: "rights-of-root", tries: "return os.chown('.', 1, 1)", denied_by: &[] },
    Escape {
        name: "signal",
        tries: "return os.kill(given['worker'], 0)",
        denied_by: &["landlock", "pid_namespace"],
    },
    Escape {
        name: "limits-of-the-worker",
        tries: "return resource.prlimit(given['worker'], resource.RLIMIT_NOFILE)",
        denied_by: &["seccomp", "pid_namespace"],
    },
    Escape {
        name: "priority-of-another",
        tries: "pid = os.fork() or os.execlp('sleep', 'sleep', '2'); return os.setpriority(os.PRIO_PROCESS, pid, 5)",
        denied_by: &["seccomp"],
    },
    Escape {
        name: "processors-of-another",
        tries: "pid = os.fork() or os.execlp('sleep', 'sleep', '2'); return os.sched_setaffinity(pid, os.sched_getaffinity(0))",
        denied_by: &["seccomp"],
    },
    Escape {
        name: "anonymous-shared-memory",
        tries: "return mmap.mmap(-1, 4096).close()",
        denied_by: &["seccomp"],
    },
    Escape {
        name: "shared-memory-of-a-device",
        tries: "return open('/dev/zero', 'r+b', buffering=0).close()",
        denied_by: &["landlock"],
    },
    Escape {
        name: "larger-sockets",
        tries: "return socket.socketpair()[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)",
        denied_by: &["seccomp"],
    },
    Escape {
        name: "tcp",
        tries: "return socket.create_connection(('127.0.0.1', given['tcp'])).close()",
        denied_by: &["landlock", "seccomp", "network_namespace"],
    },
    Escape {
        name: "tcp-server",
        tries: "s = socket.socket(); s.bind((given['other'], 0)); return s.close()",
        denied_by: &["landlock", "seccomp"],
    },
    Escape {
        name: "udp",
        tries: "s = socket.socket(type=socket.SOCK_DGRAM); return s.sendto(b'x', ('127.0.0.1', given['udp']))",
        denied_by: &["seccomp", "network_namespace"],
    },
    Escape {
        name: "unix-socket",
        tries: "s = socket.socket(socket.AF_UNIX); return s.connect(given['unix'])",
        denied_by: &["seccomp"],
    },
    Escape {
        name: "abstract-unix-socket",
        tries: "s = socket.socket(socket.AF_UNIX); return s.connect('\\0' + given['abstract'])",
        denied_by: &["landlock", "seccomp", "network_namespace"],
    },
    Escape {
        name: "user-namespace",
        tries: "return call(ctypes.CDLL(None, use_errno=True).unshare(0x10000000))",
        denied_by: &["seccomp"],
    },
    Escape {
        name: "tracing-a-child",
        tries: "return call(ctypes.CDLL(None, use_errno=True).ptrace(0, 0, 0, 0))",
        denied_by: &["seccomp"],
    },
    Escape { name: "memory-file", tries: "return os.memfd_create('x')", denied_by: &["seccomp"] },
    Escape {
        name: "shared-memory",
        tries: "return call(ctypes.CDLL(None, use_errno=True).shmget(0, 4096, 0o1600))",
        denied_by: &["seccomp"],
    },
    Escape {
        name: "message-queue",
        tries: "return call(ctypes.CDLL(None, use_errno=True).msgget(0, 0o1600))",
        denied_by: &["seccomp"],
    },
    Escape {
        name: "semaphores",
        tries: "return call(ctypes.CDLL(None, use_errno=True).semget(0, 1, 0o1600))",
        denied_by: &["seccomp"],
    },
    Escape {
        name: "sending-open-files",
        tries: "a, b = socket.socketpair(); return socket.send_fds(a, [b'x'], [0])",
        denied_by: &["seccomp"],
    },
    Escape {
        name: "hiding-open-files",
        tries: "return call(ctypes.CDLL(None, use_errno=True).prctl(4, 0, 0, 0, 0))",
        denied_by: &["seccomp"],
    },
    Escape {
        name: "memory",
        tries: "return len(mmap.mmap(-1, 2 << 30, flags=mmap.MAP_PRIVATE))",
        denied_by: &["rlimits"],
    },
    Escape {
        name: "file-size",
        tries: "f = open('large', 'wb'); f.seek(65 << 20); f.write(b'x'); return f.close()",
        denied_by: &["rlimits"],
    },
];

const PROGRAM: &str = r#"
import ctypes, errno, json, mmap, os, resource, socket, sys
given = json.loads(sys.stdin.readline())["inputs"]
def call(returned):
    if returned == -1: raise OSError(ctypes.get_errno(), "denied")
def attempt():
    TRIES
try:
    said = "escaped: %r" % (attempt(),)
except MemoryError:
    said = "denied: ENOMEM"
except OSError as e:
    said = "denied: %s" % errno.errorcode.get(e.errno, e)
print(json.dumps({"type": "result", "result": said}))
"#;

fn agent(escape: &Escape, without: &[&str]) -> Value {
    json!({
        "agent_id": agent_id(escape, without),
        "kind": "command",
        "command": ["python3", "-c", PROGRAM.replace("TRIES", escape.tries)],
        "pool": pool(without),
    })
}

fn agent_id(escape: &Escape, without: &[&str]) -> String {
    // Ids are short: one letter per layer.
    let letters: String = without.iter().filter_map(|layer| layer.chars().next()).collect();
    format!("{}-{letters}x", escape.name)
}

/// All layers except one.
fn all_but(layer: &str) -> Vec<&'static str> {
    LAYERS.into_iter().filter(|other| *other != layer).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn i4_each_escape_is_denied_by_the_layers_named_and_by_no_other() {
    let outside = Directory::new();
    let secret = outside.path().join("secret");
    std::fs::write(&secret, "the parent's").unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let unix = outside.path().join("socket");
    let _unix = UnixListener::bind(&unix).unwrap();
    let name = format!("trellis-{}", std::process::id());
    let _abstract = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let inputs = json!({
        "secret": secret, "worker": std::process::id(), "tcp": tcp.local_addr().unwrap().port(), "other": "127.0.0.1",
        "udp": udp.local_addr().unwrap().port(), "unix": unix, "abstract": name,
    });

    // The escape, the layers that are switched off, and whether it must be denied.
    let mut tries: Vec<(&Escape, Vec<&str>, bool)> = Vec::new();
    for escape in &ESCAPES {
        tries.push((escape, Vec::new(), true));
        tries.extend(escape.denied_by.iter().map(|layer| (escape, all_but(layer), true)));
        match escape.denied_by {
            [] => tries.push((escape, LAYERS.to_vec(), true)),
            layers => tries.push((escape, layers.to_vec(), false)),
        }
    }
    let mut sets: Vec<&[&str]> = tries.iter().map(|(_, without, _)| without.as_slice()).collect();
    sets.sort_unstable();
    sets.dedup();
    let cluster = cluster(&sets);
    apply(&cluster.client, tries.iter().map(|(escape, without, _)| agent(escape, without)).collect()).await;

    let mut wrong = Vec::new();
    for (escape, without, denied) in &tries {
        let goal = json!({"goal": "escape", "agent_id": agent_id(escape, without), "inputs": inputs});
        let outcome = cluster.client.run(goal).await;
        let said = if outcome.context.status == EndStatus::Completed {
            result(&outcome).as_str().unwrap().to_owned()
        } else {
            error(&outcome)
        };
        if said.starts_with("denied") != *denied || said.starts_with("escaped") == *denied {
            wrong.push(format!("{} without {without:?}: {said}", escape.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i4_a_required_layer_that_is_missing_fails_closed_and_is_named() {
    let marker = Directory::new();
    let proof = marker.path().join("it ran");
    let cluster = cluster(&[&["landlock"]]);
    let agent = json!({
        "agent_id": "careful", "kind": "command", "pool": "landlock", "requires": ["landlock", "seccomp"],
        "command": ["touch", proof],
    });
    // A program without required layers runs.
    let careless = json!({
        "agent_id": "careless", "kind": "command", "pool": "landlock", "command": ["sh", "-c", "echo ran"],
    });
    apply(&cluster.client, vec![agent, careless]).await;
    let outcome = cluster.client.run(json!({"goal": "go", "agent_id": "careful"})).await;
    assert_eq!(outcome.context.status, EndStatus::Failed);
    let said = error(&outcome);
    assert!(said.contains("landlock (switched off in the worker's settings)"), "{said}");
    assert!(!said.contains("seccomp"), "the message names a layer that is not missing: {said}");
    assert!(!proof.exists());
    let outcome = cluster.client.run(json!({"goal": "go", "agent_id": "careless"})).await;
    assert_eq!(result(&outcome), "ran");
    cluster.stop().await;
}

/// `network: true` allows TCP and UDP, and no Unix sockets.
#[tokio::test(flavor = "multi_thread")]
async fn i4_the_network_is_open_to_agents_whose_profile_allows_it() {
    let outside = Directory::new();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let unix = outside.path().join("socket");
    let _unix = UnixListener::bind(&unix).unwrap();
    let name = format!("trellis-network-{}", std::process::id());
    let _abstract = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let inputs = json!({
        "tcp": tcp.local_addr().unwrap().port(), "other": "127.0.0.1", "udp": udp.local_addr().unwrap().port(),
        "unix": unix, "abstract": name,
    });
    let cluster = cluster(&[&[]]);
    let names = ["tcp", "tcp-server", "udp", "unix-socket", "abstract-unix-socket"];
    for (allowed, network) in [(&names[..0], false), (&names[..3], true)] {
        for escape in ESCAPES.iter().filter(|escape| names.contains(&escape.name)) {
            let mut agent = agent(escape, &[]);
            agent["network"] = json!(network);
            apply(&cluster.client, vec![agent]).await;
            let goal = json!({"goal": "reach", "agent_id": agent_id(escape, &[]), "inputs": inputs});
            let said = result(&cluster.client.run(goal).await);
            let expected = if allowed.contains(&escape.name) { "escaped" } else { "denied" };
            assert!(
                said.as_str().unwrap().starts_with(expected),
                "{} with network {network}: {said}",
                escape.name
            );
        }
    }
    cluster.stop().await;
}
