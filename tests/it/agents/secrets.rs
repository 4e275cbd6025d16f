//! Secrets by name only (S8), on a cluster of processes: an LLM agent sends one through two tools,
//! and a program with secrets writes them to every place it can. Then every byte that the cluster
//! stored, logged, exported and sent to a model is searched.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use domain::subject::Filter;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use trellis_tests::{
    cluster::KEY,
    processes::{Processes, Shape, fresh_trace},
    servers::{Attack, HostileServer, ModelServer, NatsServer, Prompt, RedisServer, Reply, exporting_to},
};

use super::{agent, call, finished, say};

/// A server that keeps every request unchanged, and echoes it.
async fn echo() -> (u16, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, kept) = (listener.local_addr().unwrap().port(), Arc::<Mutex<Vec<u8>>>::default());
    let all = kept.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let all = all.clone();
            tokio::spawn(async move {
                let mut request = vec![0; 1 << 20];
                while let Ok(count @ 1..) = stream.read(&mut request).await {
                    all.lock().unwrap().extend_from_slice(&request[..count]);
                    let said = String::from_utf8_lossy(&request[..count]);
                    let is_spans = said.starts_with("POST");
                    let body = if is_spans { String::new() } else { format!("you sent: {said}") };
                    let answer = format!(
                        "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n{body}",
                        body.len()
                    );
                    if stream.write_all(answer.as_bytes()).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    (port, kept)
}

/// An MCP server whose tool stores its arguments in a file, repeats them, and complains about them.
const SERVER: &str = r#"
import base64, json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    if asked["method"] == "initialize":
        version = asked["params"]["protocolVersion"]
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "keys", "version": "1"}}
    elif asked["method"] == "tools/list":
        result = {"tools": [{"name": "use", "description": "uses a token", "inputSchema": {"type": "object"}}]}
    elif asked["method"] == "tools/call":
        token = asked["params"]["arguments"].get("token", "")
        open(sys.argv[1], "a").write(token + "\n")
        print("got", token, file=sys.stderr, flush=True)
        text = "used " + token + " and " + base64.b64encode(("me:" + token).encode()).decode()
        result = {"content": [{"type": "text", "text": text}]}
    else:
        result = {}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"#;

/// A program that leaks its secrets in every way it can, and reports a digest to show that it had
/// them.
const TELLS: &str = r#"
import base64, hashlib, json, os, sys, urllib.parse
start = json.loads(sys.stdin.readline())
def say(**line):
    print(json.dumps(line), flush=True)
def ask(**line):
    say(**line)
    return json.loads(sys.stdin.readline())
a, b = os.environ["A_KEY"], os.environ["B_KEY"]
assert start["secrets"] == ["A_KEY", "B_KEY", "C_KEY"] and "C_KEY" not in os.environ
open("input.json").read().index("A_KEY")
os.makedirs("outputs", exist_ok=True)
open("outputs/leak.txt", "w").write("the file says " + a + "\n" + b)
os.makedirs(os.path.dirname("outputs/" + a), exist_ok=True)
open("outputs/" + a, "w").write("a file that is named so")
say(type="progress", message="now " + a)
say(type="progress", message=a[:9])
say(type="progress", message=a[9:])
sys.stdout.write('{"type": "progress", "message": "')
sys.stdout.flush()
sys.stdout.write(a[:5])
sys.stdout.flush()
sys.stdout.write(a[5:] + '"}\n')
sys.stdout.flush()
print('{"type": "progress", "message": "' + "".join("\\u%04x" % ord(c) for c in a) + '"}', flush=True)
print(a, file=sys.stderr, flush=True)
ask(type="cost", id="c", key=a, usd=0.001)
ask(type="tool", id="1", tool="fs.write", arguments={"path": "outputs/written.txt", "content": a})
ask(type="tool", id="2", tool="write_context", arguments={"key": "tells.leak", "value": {a: [b]}})
ask(type="tool", id="3", tool=a, arguments={})
read = ask(type="tool", id="4", tool="fs.read", arguments={"path": "outputs/leak.txt"})["text"]
used = ask(type="tool", id="5", tool="keys:use", arguments={"token": "from the program {{secret:C_KEY}}"})["text"]
ask(type="model", id="6", messages=[{"role": "user", "content": "keep this: " + a + " " + b}])
print('{"type": "toool", "id": "7", "about": "' + a + '"}', flush=True)
sys.stdin.readline()
say(type="result", result={
    "had": hashlib.sha256((a + b).encode()).hexdigest(), "read": read, "used": used,
    "plain": a, "lines": b, a: 1, "json": json.dumps([b]), "base64": base64.b64encode(a.encode()).decode(),
    "basic": base64.b64encode(("user:" + a).encode()).decode(), "hex": a.encode().hex(), "url": urllib.parse.quote(b, safe=""),
    "wrapped": base64.encodebytes(("x" * 50 + a).encode()).decode(), "large": (a + " ") * 20000,
})
"#;

/// Ends with its secret as plain output, or as an error.
const SHOUTS: &str = "import os, sys; print('it is', os.environ['A_KEY']); print(os.environ['B_KEY'])";
const FAILS: &str = "import os, sys; print('broken:', os.environ['A_KEY'], file=sys.stderr); sys.exit(3)";

fn program(agent_id: &str, body: &str) -> Value {
    json!({"agent_id": agent_id, "kind": "command", "command": ["python3", "-c", body], "model": "test/model"})
}

/// The model's script: it uses its secret correctly twice, then in forbidden ways.
fn model_of(port: u16) -> impl Fn(&Prompt) -> Reply + Send + Sync {
    let url = format!("http://127.0.0.1:{port}");
    move |prompt: &Prompt| match (prompt.task().as_str(), prompt.turn()) {
        ("use it", 0) => call(
            "http_get",
            json!({"url": format!("{url}/get?k={{{{secret:A_KEY}}}}"), "headers": {"Authorization": "Bearer {{secret:A_KEY}}"}}),
        ),
        ("use it", 1) => call("keys_use", json!({"token": "{{secret:A_KEY}}"})),
        ("use it", 2) => call("keys_use", json!({"token": "{{secret:C_KEY}} was not given"})),
        ("use it", 3) => call("keys_use", json!({"token": "{{secret:{{secret:A_KEY}}}} is nested"})),
        ("use it", 4) => call("fs_write", json!({"path": "outputs/it", "content": "{{secret:A_KEY}}"})),
        ("use it", 5) => call(
            "http_get",
            json!({"url": format!("http://localhost:{port}/other"), "headers": {"x": "{{secret:A_KEY}}"}}),
        ),
        ("use it", 6) => {
            call("spawn", json!({"goal": "too much", "agent_id": "user", "secrets": ["A_KEY", "B_KEY"]}))
        }
        ("use it", 7) => call("spawn", json!({"goal": "child", "agent_id": "user", "secrets": ["A_KEY"]})),
        ("child", 0) => call("keys_use", json!({"token": "of the child: {{secret:A_KEY}}"})),
        _ => say(&format!("done: {}", prompt.last())),
    }
}

/// The files beneath a directory, with their contents.
fn files(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            found.extend(files(&entry));
        } else {
            found.push((entry.clone(), std::fs::read(&entry).unwrap_or_default()));
        }
    }
    found
}

fn has(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// The values found in the bytes, in plain or encoded form.
fn leaks(bytes: &[u8], values: &[&str]) -> Vec<String> {
    let forms = values.iter().flat_map(|value| {
        let quoted = json!(value).to_string();
        let hex: String = value.bytes().map(|byte| format!("{byte:02x}")).collect();
        [(*value).to_owned(), quoted[1..quoted.len() - 1].to_owned(), hex]
    });
    forms.filter(|form| has(bytes, form)).collect()
}

struct Found {
    cluster: Processes,
    outcome: Value,
    model: ModelServer,
    got: Arc<Mutex<Vec<u8>>>,
    spans: Arc<Mutex<Vec<u8>>>,
    directory: PathBuf,
    live: Vec<u8>,
}

/// Runs the whole test, with workers that log everything.
async fn run(a: &str, b: &str, c: &str) -> Found {
    let (port, got) = echo().await;
    let (collector, spans) = echo().await;
    let directory = std::env::temp_dir().join(format!("trellis-secrets-{}", fresh_trace()));
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("b"), format!("{b}\n")).unwrap();
    let model = ModelServer::start(model_of(port)).await;
    let mut worker = model.settings();
    let server = directory.join("used");
    worker["mcp"] = json!({"keys": {"command": ["python3", "-c", SERVER, server], "writes": [directory]}});
    worker["http"] = json!({"allow": [format!("127.0.0.1:{port}"), format!("localhost:{port}")]});
    let agents = json!(["user", "tells", "shouts", "fails"]);
    worker["secrets"] = json!({
        "A_KEY": {"env": "THE_FIRST", "agents": agents, "programs": true, "tools": ["http.get", "keys:*"],
                  "hosts": [format!("127.0.0.1:{port}")]},
        "B_KEY": {"file": directory.join("b"), "agents": agents, "programs": true},
        "C_KEY": {"env": "THE_THIRD", "agents": agents, "tools": ["keys:use"]},
        "GONE": {"env": "NOT_THERE", "agents": ["*"]},
    });
    let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    // Coordinators decide which runs are exported.
    let exported = exporting_to(&format!("http://127.0.0.1:{collector}"), "http/protobuf");
    let own = [variable("THE_FIRST", a), variable("THE_THIRD", c), variable("RUST_LOG", "trace")];
    let environment = [&exported[..], &own].concat();
    let shape = || Shape { worker, environment, coordinators_environment: exported, ..Shape::new(1, 1) };
    let cluster = Processes::start_as(shape).await;
    let step = |id: &str, agent: &str, goal: &str, more: Value| {
        let mut step = json!({"id": id, "agent_id": agent, "task_description": goal, "required": false});
        step.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        step
    };
    cluster
        .apply(json!([
            agent("user"),
            agent("stranger"),
            program("tells", TELLS),
            program("shouts", SHOUTS),
            program("fails", FAILS),
        ]))
        .await;
    let graph = json!({
        "mode": "parallel", "on_partial_success": "continue", "max_cost_usd": 5, "limits": {"max_result_bytes": 65536},
        "secrets": ["A_KEY", "B_KEY", "C_KEY", "GONE"],
        "steps": [
            step("uses", "user", "use it", json!({"secrets": ["A_KEY"]})),
            step("tells", "tells", "tell it", json!({"secrets": ["A_KEY", "B_KEY", "C_KEY"]})),
            step("shouts", "shouts", "shout it", json!({"secrets": ["A_KEY", "B_KEY"], "output_to": "shouted"})),
            step("fails", "fails", "break", json!({"secrets": ["A_KEY"]})),
            step("stranger", "stranger", "ask for it", json!({"secrets": ["A_KEY", "GONE"]})),
        ],
    });
    let run = fresh_trace();
    let mut words = cluster.client.bus.subscribe(&Filter::StreamsOf(run)).await.unwrap();
    let live = Arc::<Mutex<Vec<u8>>>::default();
    let heard = live.clone();
    let listening = tokio::spawn(async move {
        while let Some(message) = words.next().await {
            heard.lock().unwrap().extend_from_slice(&message.payload);
        }
    });
    cluster.begin_as(run, graph).await;
    let (outcome, _) = finished(&cluster, run).await;
    listening.abort();
    let live = std::mem::take(&mut *live.lock().unwrap());
    Found { cluster, outcome, model, got, spans, directory, live }
}

fn step<'a>(outcome: &'a Value, id: &str) -> &'a Value {
    let steps = outcome["context"]["result"]["steps"].as_array().or(outcome["graph"]["steps"].as_array());
    steps.unwrap_or_else(|| panic!("{outcome:#}")).iter().find(|step| step["id"] == id).unwrap()
}

/// proves: values reach only the tools and programs that may have them. Streams, objects, keys,
/// logs at any level, spans, prompts, live output and the run's answer contain none.
#[tokio::test(flavor = "multi_thread")]
async fn s8_a_secret_reaches_tools_and_programs_and_nothing_that_is_kept() {
    let fresh = || fresh_trace().to_string();
    let (a, b, c) =
        (format!("A+/{}", fresh()), format!("B \"{}\"\nof & lines", fresh()), format!("C-{}", fresh()));
    let values = [a.as_str(), b.as_str(), c.as_str()];
    let Found { mut cluster, outcome, model, got, spans, directory, live } = run(&a, &b, &c).await;

    let text = outcome.to_string();
    // The values arrived.
    let got = String::from_utf8_lossy(&got.lock().unwrap()).into_owned();
    let escaped = a.replace('+', "%2B").replace('/', "%2F");
    assert!(got.contains(&format!("GET /get?k={escaped} ")), "{got}");
    assert!(got.to_lowercase().contains(&format!("authorization: bearer {}", a.to_lowercase())), "{got}");
    assert!(!got.contains("/other"), "a host that is not allowed received the secret: {got}");
    let used = std::fs::read_to_string(directory.join("used")).unwrap();
    let mut used: Vec<&str> = used.lines().collect();
    used.sort_unstable();
    let mut expected = [a.clone(), format!("from the program {c}"), format!("of the child: {a}")];
    expected.sort_unstable();
    assert_eq!(used, expected, "refused calls sent no secret");
    let told = step(&outcome, "tells");
    assert_eq!(told["status"], "succeeded", "{told:#}");
    for (id, status) in
        [("uses", "succeeded"), ("shouts", "succeeded"), ("fails", "failed"), ("stranger", "failed")]
    {
        assert_eq!(step(&outcome, id)["status"], status, "{id}: {:#}", step(&outcome, id));
    }
    let refused = step(&outcome, "stranger").to_string();
    for says in ["`GONE`: the environment variable NOT_THERE is not set", "don't list `stranger`", "hint"] {
        assert!(refused.contains(says), "{says}: {refused}");
    }
    assert!(step(&outcome, "fails").to_string().contains("broken: [A_KEY]"), "{:#}", step(&outcome, "fails"));
    assert!(text.contains("it is [A_KEY]\\n[B_KEY]"), "{text}");

    // The model received the names, and the reasons why its forbidden calls were refused.
    let prompts = model.prompts().iter().map(Value::to_string).collect::<String>();
    for says in [
        "Your secrets: `A_KEY` (for `http.get` to 127.0.0.1:",
        "used [A_KEY] and ",
        "you were not given the secret `C_KEY`",
        "this is not a placeholder of a secret",
        "`fs.write` can't use a secret",
        "may not be sent to `http://localhost:",
        "does not have `B_KEY`",
        "keep this: [A_KEY] [B_KEY]",
    ] {
        assert!(prompts.contains(says), "{says}\nis not in\n{prompts}");
    }

    // No other place has them.
    let mut places: Vec<(String, Vec<u8>)> = Vec::new();
    places.push(("the outcome".into(), text.into_bytes()));
    places.push(("what the model was sent".into(), prompts.into_bytes()));
    assert!(has(&live, "now [A_KEY]"), "{}", String::from_utf8_lossy(&live));
    places.push(("live output".into(), live));
    // Stopped in order, so that everything is written.
    for name in ["w1", "c1"] {
        cluster.stop(name).await;
        places.push((format!("the log of {name}"), cluster.log(name).into_bytes()));
    }
    let log = cluster.log("w1");
    assert!(log.contains("TRACE") && log.contains("GONE"), "a worker logs missing secrets at its start");
    cluster.nats.stop();
    cluster.redis.stop();
    let stored = [("NATS", cluster.nats.directory()), ("Redis", cluster.redis.directory())];
    for (server, path) in stored {
        let all = files(path);
        assert!(all.iter().any(|(_, bytes)| has(bytes, "A_KEY")), "the search reads the data of {server}");
        places.extend(all.into_iter().map(|(path, bytes)| (path.display().to_string(), bytes)));
    }
    let objects: Vec<u8> =
        places.iter().filter(|(path, _)| path.contains("OBJ_")).flat_map(|(_, b)| b.clone()).collect();
    assert!(has(&objects, "the file says [A_KEY]"), "a file that was handed over");
    assert!(has(&objects, "[A_KEY] [A_KEY]"), "a large result");
    let spans = spans.lock().unwrap().clone();
    assert!(has(&spans, "execute_tool keys:use"), "spans were exported");
    places.push(("spans".into(), spans));
    let found: Vec<String> = places
        .iter()
        .flat_map(|(place, bytes)| {
            leaks(bytes, &values).into_iter().map(move |form| format!("{place}: {form}"))
        })
        .collect();
    std::fs::remove_dir_all(&directory).unwrap();
    assert!(found.is_empty(), "{found:#?}");
}

/// A provider that leaks the key it was sent: in an answer, in pieces, encoded, and in an error.
fn gives_away(request: &str, says: &str) -> Attack {
    let key =
        request.lines().find_map(|line| line.strip_prefix("authorization: Bearer ")).unwrap_or_default();
    if request.contains("Your task: refuse") {
        let body = json!({"error": {"message": format!("{says}: the key {key} is wrong")}}).to_string();
        let head = format!("HTTP/1.1 401 Unauthorized\r\ncontent-length: {}\r\n\r\n", body.len());
        return Attack::once(head + &body);
    }
    let hex: String = key.bytes().map(|byte| format!("{byte:02x}")).collect();
    let pieces = ["your key is ", &key[..7], &key[7..], " or ", &hex];
    let piece =
        |text: &&str| format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": {"content": text}}]}));
    let pieces: String = pieces.iter().map(piece).collect();
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 12, "completion_tokens": 3}});
    Attack::once(format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n{pieces}data: {end}\n\ndata: [DONE]\n\n"
    ))
}

/// Prints its own environment, and the data of its parent that it can see.
const LOOKS: &str = r#"
import glob, json, os
seen = [dict(os.environ)]
for path in ["/proc/%d/environ" % os.getppid(), "/proc/%d/cmdline" % os.getppid()] + glob.glob("/proc/*/environ"):
    try:
        seen.append(open(path, errors="replace").read())
    except OSError:
        pass
print(json.dumps(seen).encode().hex())
"#;

/// proves: a worker's own keys, from a variable and from a file, appear in no channel, even if a
/// provider and a program leak them. Texts of users and providers appear in no span, and in no log
/// at the default level.
#[tokio::test(flavor = "multi_thread")]
async fn t10_a_planted_secret_is_found_in_no_channel() {
    let fresh = || fresh_trace().to_string();
    let (key, token, goal, says) = (
        format!("K-{}", fresh()),
        format!("T-{}", fresh()),
        format!("PRIVATE-{}", fresh()),
        format!("SAYS-{}", fresh()),
    );
    let told = says.clone();
    let provider = HostileServer::start(move |request| gives_away(request, &told)).await;
    let (collector, spans) = echo().await;
    let directory = std::env::temp_dir().join(format!("trellis-canary-{}", fresh_trace()));
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("provider"), format!("{key}\n")).unwrap();
    let worker = json!({
        "providers": {"test": {"protocol": "openai", "base_url": format!("http://127.0.0.1:{}/v1", provider.port()),
            "key_env": "THE_KEY"}},
        "prices": {"test/model": {"input": "1", "output": "2"}},
        "mcp": {"keys": {"url": format!("http://127.0.0.1:{}/mcp", provider.port()), "token_env": "THE_TOKEN"}},
    });
    let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let exported = [
        variable("OTEL_EXPORTER_OTLP_ENDPOINT", &format!("http://127.0.0.1:{collector}")),
        variable("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
        variable("RUST_LOG", "debug"),
    ];
    let own = [
        variable("THE_KEY_FILE", &directory.join("provider").display().to_string()),
        variable("THE_TOKEN", &token),
    ];
    let environment = [&exported[..], &own].concat();
    let settings = json!({"limits": {"max_retries_total": 0}});
    let shape = || Shape {
        worker,
        environment,
        settings,
        coordinators_environment: exported.to_vec(),
        ..Shape::new(1, 1)
    };
    let mut cluster = Processes::start_as(shape).await;
    let agent = json!({"agent_id": "one", "kind": "llm", "model": "test/model", "tools": []});
    cluster.apply(json!([agent, program("looks", LOOKS)])).await;
    let mut places: Vec<(String, Vec<u8>)> = Vec::new();
    for (task, agent) in [("give", "one"), ("refuse", "one"), ("look", "looks")] {
        let run = fresh_trace();
        let mut words = cluster.client.bus.subscribe(&Filter::StreamsOf(run)).await.unwrap();
        cluster
            .begin_as(run, json!({"goal": format!("{task} {goal}"), "agent_id": agent, "max_cost_usd": 1}))
            .await;
        let outcome = cluster.outcome(run).await;
        let text = serde_json::to_string(&outcome).unwrap();
        match task {
            "give" => assert!(text.contains("your key is [THE_KEY] or [THE_KEY]"), "{text}"),
            "refuse" => {
                assert!(text.contains(&says) && text.contains("401"), "the outcome has the reason: {text}")
            }
            _ => {}
        }
        places.push((format!("the outcome of {task}"), text.into_bytes()));
        while let Some(Some(message)) = futures_util::FutureExt::now_or_never(words.next()) {
            places.push((format!("live output of {task}"), message.payload.to_vec()));
        }
    }
    for name in ["w1", "c1"] {
        cluster.stop(name).await;
        places.push((format!("the log of {name}"), cluster.log(name).into_bytes()));
    }
    let spans = spans.lock().unwrap().clone();
    assert!(has(&spans, "error.type"), "the coordinator's spans have the kind of the failure");
    // Texts of users and providers.
    let shown = |name: &str| -> String {
        let log = cluster.log(name);
        log.lines()
            .filter(|line| !line.contains("DEBUG") && !line.contains("TRACE"))
            .map(|line| format!("{line}\n"))
            .collect()
    };
    for (place, bytes) in
        [("spans", spans.clone()), ("w1", shown("w1").into_bytes()), ("c1", shown("c1").into_bytes())]
    {
        let found = leaks(&bytes, &[&goal, &says]);
        assert!(found.is_empty(), "{place}: {found:?}");
    }
    places.push(("spans".into(), spans));
    cluster.nats.stop();
    cluster.redis.stop();
    for path in [cluster.nats.directory(), cluster.redis.directory()] {
        let all = files(path);
        assert!(all.iter().any(|(_, bytes)| has(bytes, &goal)), "the search reads the stored data");
        places.extend(all.into_iter().map(|(path, bytes)| (path.display().to_string(), bytes)));
    }
    let found: Vec<String> = places
        .iter()
        .flat_map(|(place, bytes)| {
            leaks(bytes, &[&key, &token]).into_iter().map(move |form| format!("{place}: {form}"))
        })
        .collect();
    std::fs::remove_dir_all(&directory).unwrap();
    assert!(found.is_empty(), "{found:#?}");
}

/// Sends this text as an answer or, if the task is to refuse, as an error.
fn says(request: &str, text: &str) -> Attack {
    if request.contains("Your task: refuse") {
        let body = json!({"error": {"message": text}}).to_string();
        let head = format!("HTTP/1.1 401 Unauthorized\r\ncontent-length: {}\r\n\r\n", body.len());
        return Attack::once(head + &body);
    }
    let piece = json!({"choices": [{"index": 0, "delta": {"content": text}}]});
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 12, "completion_tokens": 3}});
    Attack::once(format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {piece}\n\ndata: {end}\n\ndata: [DONE]\n\n"
    ))
}

/// proves: passwords of connections (in an address, in a variable, in a file that an option names)
/// and keys in a directory of secrets appear in no process's environment and in no channel, even if
/// a peer repeats them; and each of them is used.
#[tokio::test(flavor = "multi_thread")]
async fn t10_keys_of_connections_are_found_in_no_channel() {
    let fresh = |kind: &str| format!("{kind}-{}", fresh_trace());
    let (key, unused) = (fresh("K"), fresh("U"));
    let (in_address, in_file, of_coordinators, of_redis) = (fresh("A"), fresh("F"), fresh("C"), fresh("R"));
    let canaries = [&key, &unused, &in_address, &in_file].map(String::as_str);
    let told = format!("you said {}.", canaries.join(" and "));
    let sent = told.clone();
    let heard = Arc::<Mutex<String>>::default();
    let hears = heard.clone();
    let provider = HostileServer::start(move |request| {
        hears.lock().unwrap().push_str(request);
        says(request, &sent)
    })
    .await;
    let directory = std::env::temp_dir().join(format!("trellis-connections-{}", fresh_trace()));
    std::fs::create_dir_all(directory.join("keys")).unwrap();
    std::fs::write(directory.join("password"), format!("{in_file}\n")).unwrap();
    std::fs::write(directory.join("keys/THE_KEY"), format!("{key}\n")).unwrap();
    std::fs::write(directory.join("keys/NOBODY_ASKS"), &unused).unwrap();
    let worker = json!({
        "providers": {"test": {"protocol": "openai", "base_url": format!("http://127.0.0.1:{}/v1", provider.port()),
            "key_env": "THE_KEY"}},
        "prices": {"test/model": {"input": "1", "output": "2"}},
    });
    let user = |name: &str, password: &str| format!("{{ user: {name}, password: \"{password}\" }}");
    let users = [
        user("anybody", "anybody"),
        user("address", &in_address),
        user("file", &in_file),
        user("core", &of_coordinators),
    ];
    let users = format!("authorization {{ users: [{}] }}\nno_auth_user: anybody", users.join(", "));
    let shape = || {
        let mut shape = Shape::new(1, 1);
        shape.nats = NatsServer::start_with("", &users);
        shape.redis =
            RedisServer::start_with(&["--user", "core", "on", &format!(">{of_redis}"), "~*", "&*", "+@all"]);
        let at = |login: &str, url: String| url.replacen("://", &format!("://{login}@"), 1);
        shape.workers_nats = Some(at(&format!("address:{in_address}"), shape.nats.url()));
        shape.redis_url = Some(at(&format!("core:{of_redis}"), shape.redis.url()));
        let coordinators = [("NATS_USER", "core"), ("NATS_PASSWORD", &of_coordinators)];
        let variable = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        shape.coordinators_environment = coordinators.map(variable).to_vec();
        shape.settings = json!({"limits": {"max_retries_total": 0}});
        shape.worker = worker;
        shape.environment = vec![("RUST_LOG".to_owned(), "debug".to_owned())];
        shape
    };
    let mut cluster = Processes::start_as(shape).await;
    let environment = |cluster: &mut Processes, name: &str| {
        // An ordinary user can't read the file at all.
        let environ = std::fs::read(format!("/proc/{}/environ", cluster.pid(name))).unwrap_or_default();
        assert!(environ.is_empty() || has(&environ, "NO_COLOR=1"), "{name}");
        environ
    };
    let all = [in_address.as_str(), &of_redis, &of_coordinators, KEY];
    for name in ["w1", "c1"] {
        let found = leaks(&environment(&mut cluster, name), &all);
        assert!(found.is_empty(), "the environment of {name}: {found:?}");
    }
    cluster.stop("w1").await;
    let [password, keys] = ["password", "keys"].map(|name| directory.join(name).display().to_string());
    cluster
        .run_with("w1", &["--nats-user", "file", "--nats-password-file", &password, "--secrets-dir", &keys]);
    cluster.all_there().await;
    assert!(leaks(&environment(&mut cluster, "w1"), &canaries).is_empty());
    cluster.apply(json!([{"agent_id": "one", "kind": "llm", "model": "test/model", "tools": []}])).await;
    let mut places: Vec<(String, Vec<u8>)> = Vec::new();
    for task in ["give", "refuse"] {
        let run = fresh_trace();
        cluster.begin_as(run, json!({"goal": task, "agent_id": "one", "max_cost_usd": 1})).await;
        let text = serde_json::to_string(&cluster.outcome(run).await).unwrap();
        // An error of a provider names the provider's own key as `key`.
        let key = if task == "give" { "THE_KEY" } else { "key" };
        let names = format!("you said [{key}] and [NOBODY_ASKS] and [NATS_URL] and [NATS_PASSWORD].");
        assert!(text.contains(&names), "{task}: {text}");
        places.push((format!("the outcome of {task}"), text.into_bytes()));
    }
    assert!(heard.lock().unwrap().contains(&format!("Bearer {key}")), "the key in the directory is used");
    for name in ["w1", "c1"] {
        cluster.stop(name).await;
        places.push((format!("the log of {name}"), cluster.log(name).into_bytes()));
    }
    cluster.nats.stop();
    cluster.redis.stop();
    for path in [cluster.nats.directory(), cluster.redis.directory()] {
        // The server's own configuration contains the passwords that it requires.
        let all = files(path).into_iter().filter(|(path, _)| !path.ends_with("nats.conf"));
        places.extend(all.map(|(path, bytes)| (path.display().to_string(), bytes)));
    }
    let all = [&canaries[..], &all].concat();
    let found: Vec<String> = places
        .iter()
        .flat_map(|(place, bytes)| leaks(bytes, &all).into_iter().map(move |form| format!("{place}: {form}")))
        .collect();
    std::fs::remove_dir_all(&directory).unwrap();
    assert!(found.is_empty(), "{found:#?}");
}
