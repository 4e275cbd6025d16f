//! Calls to `server-everything` and `server-filesystem`, which the protocol's own project publishes.
//! `scripts/servers` installs them and prints where they are.

mod fuzzed;
mod hostile;

use std::{
    collections::{BTreeMap, BTreeSet},
    iter,
    path::{Path, PathBuf},
    sync::Mutex,
    time::Duration,
};

use futures_util::FutureExt;
use serde_json::{Value, json};
use tests::{processes::binary, servers::node};

use super::{Confinement, Servers, secrets, supervise::State};
use crate::{
    sandbox::Sandbox,
    secret::Values,
    settings::{McpServer, SandboxSettings},
    tool::call::Output,
};

/// The limit for a test that hangs.
const TEST_TIMEOUT: Duration = Duration::from_secs(180);

/// The directory in which `scripts/servers` installs the servers.
fn modules() -> PathBuf {
    let modules = std::env::var_os("TRELLIS_NODE_MODULES").map(PathBuf::from);
    let beneath = "../.tools/node/node_modules";
    modules.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join(beneath))
}

/// The program of a package, for node to run.
fn package(name: &str) -> String {
    let program = modules().join("@modelcontextprotocol").join(name).join("dist/index.js");
    assert!(program.exists(), "there is no {}\n\nhint: run scripts/servers once", program.display());
    program.to_str().unwrap().to_owned()
}

fn program(arguments: &[&str]) -> McpServer {
    let node = node().to_str().unwrap().to_owned();
    let arguments = arguments.iter().map(|word| (*word).to_owned());
    McpServer {
        command: iter::once(node.clone()).chain(arguments).collect(),
        env: BTreeMap::new(),
        env_from: Vec::new(),
        reads: vec![modules().to_str().unwrap().to_owned(), node],
        writes: Vec::new(),
        network: false,
        requires: BTreeSet::new(),
        resources: None,
        url: None,
        token_env: None,
        timeout_ms: Some(60_000),
    }
}

/// Servers, and the directory with their homes.
struct TestServers(Servers, RemovedAtEnd);

impl std::ops::Deref for TestServers {
    type Target = Servers;

    fn deref(&self) -> &Servers {
        let TestServers(servers, RemovedAtEnd(_)) = self;
        servers
    }
}

fn start(name: &str, settings: McpServer) -> TestServers {
    rustls::crypto::ring::default_provider().install_default().ok();
    let directory =
        std::env::temp_dir().join(format!("trellis-mcp-homes-{}", host::random::Random::System.id()));
    let sandbox = Some(Sandbox::new(binary(), &SandboxSettings::default(), &BTreeSet::new()));
    let confinement = Confinement { sandbox, directory: directory.clone() };
    let settings = BTreeMap::from([(name.to_owned(), settings)]);
    let servers = Servers::start(&settings, &Values::default(), &confinement);
    TestServers(servers, RemovedAtEnd(directory))
}

fn everything() -> TestServers {
    start("everything", program(&[&package("server-everything"), "stdio"]))
}

async fn call(servers: &Servers, tool: &str, arguments: Value) -> Output {
    let (server, tool) = tool.split_once(':').unwrap();
    tokio::time::timeout(TEST_TIMEOUT, servers.named(server).unwrap().call(tool, &arguments, None))
        .await
        .unwrap()
}

/// The processes of the machine with this word among their arguments.
fn processes(word: &str) -> Vec<i32> {
    let directories = std::fs::read_dir("/proc").unwrap().flatten();
    let ids = directories.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let has = |id: &i32| {
        let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes())
    };
    ids.filter(has).collect()
}

async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let waited = tokio::time::timeout(TEST_TIMEOUT, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("never: {what}"));
}

async fn check_everything(servers: &Servers) {
    servers.ready(|_| true).await;
    let specs = servers.specs();
    let echo = specs.iter().find(|spec| spec.name.as_str() == "everything:echo").expect("listed");
    assert_eq!(echo.parameters.value()["required"], json!(["message"]), "{echo:?}");

    let output = call(servers, "everything:echo", json!({"message": "hello"})).await.unwrap();
    assert_eq!(output, "Echo: hello");
    let sum = call(servers, "everything:get-sum", json!({"a": 2, "b": 3})).await.unwrap();
    assert!(sum.contains('5'), "{sum}");
    let image = call(servers, "everything:get-tiny-image", Value::Null).await.unwrap();
    assert!(image.contains("[image: image/png, ") && image.len() < 1000, "{image}");

    let wrong = call(servers, "everything:get-sum", json!({"a": "two"})).await.unwrap_err();
    assert!(wrong.contains("a: ") && wrong.contains("\"b\" is a required property"), "{wrong}");
    let wrong = call(servers, "everything:echo", json!("hello")).await.unwrap_err();
    assert!(wrong.contains("the arguments of `everything:echo` are invalid"), "{wrong}");
    let wrong = call(servers, "everything:ecco", json!({})).await.unwrap_err();
    assert!(wrong.contains("did you mean `everything:echo`?"), "{wrong}");
}

#[tokio::test]
async fn mcp_over_stdio_lists_and_calls_and_reports_mistakes() {
    let servers = everything();
    check_everything(&servers).await;
    servers.stop().await;
}

#[tokio::test]
async fn mcp_over_streamable_http_behaves_the_same() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut server = tokio::process::Command::new("node")
        .args([&package("server-everything"), "streamableHttp"])
        .env("PORT", port.to_string())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let listens = || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
    eventually("the server listens", listens).await;
    let settings = McpServer { url: Some(format!("http://127.0.0.1:{port}/mcp")), ..program(&[]) };
    let servers = start("everything", McpServer { command: Vec::new(), ..settings });
    check_everything(&servers).await;

    server.kill().await.unwrap();
    let broken = call(&servers, "everything:echo", json!({"message": "hello"})).await.unwrap_err();
    assert!(broken.contains("the server `everything`"), "{broken}");
    servers.stop().await;
}

#[tokio::test]
async fn i4_mcp_a_path_outside_the_root_is_an_observation() {
    let root = std::env::temp_dir().join(format!("trellis-mcp-{}", std::process::id()));
    let root = RemovedAtEnd::create(root);
    std::fs::write(root.0.join("a.txt"), "inside").unwrap();
    let path = root.0.to_str().unwrap();
    let mut settings = program(&[&package("server-filesystem"), path]);
    settings.reads.push(path.to_owned());
    let servers = start("files", settings);
    let inside = format!("{path}/a.txt");
    assert_eq!(call(&servers, "files:read_text_file", json!({"path": inside})).await.unwrap(), "inside");
    let outside = call(&servers, "files:read_text_file", json!({"path": "/etc/passwd"})).await.unwrap_err();
    assert!(outside.contains("outside allowed directories") && !outside.contains("root:"), "{outside}");
    servers.stop().await;
}

#[tokio::test]
async fn mcp_a_server_killed_during_a_call_is_reported_and_restarted_for_the_next() {
    let word = format!("killed-{}", std::process::id());
    let servers = start("everything", program(&[&package("server-everything"), "stdio", &word]));
    let long = json!({"duration": 30, "steps": 2});
    let calling = call(&servers, "everything:trigger-long-running-operation", long);
    let killing = async {
        servers.ready(|_| true).await;
        let [process] = processes(&word)[..] else { panic!("one process of {word}") };
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(process), nix::sys::signal::Signal::SIGKILL)
            .unwrap();
    };
    let (broken, ()) = tokio::join!(calling, killing);
    let broken = broken.unwrap_err();
    assert!(
        broken.starts_with("the connection to the server `everything` broke during the call"),
        "{broken}"
    );

    let output = call(&servers, "everything:echo", json!({"message": "again"})).await;
    assert_eq!(output, Ok("Echo: again".into()));
    assert_eq!(processes(&word).len(), 1);
    servers.stop().await;
    assert_eq!(processes(&word), Vec::<i32>::new());
}

#[tokio::test]
async fn mcp_a_server_that_cannot_start_is_reported_with_its_error_output() {
    let servers = start("broken", program(&["-e", "console.error('no such luck'); process.exit(3)"]));
    let error = call(&servers, "broken:anything", json!({})).await.unwrap_err();
    assert!(error.contains("`broken` can't be used now") && error.contains("no such luck"), "{error}");
    let error = call(&servers, "broken:anything", json!({})).await.unwrap_err();
    assert!(error.contains("no such luck"), "{error}");
    servers.stop().await;

    let missing = McpServer { command: vec!["/no/such/program".into()], ..program(&[]) };
    let servers = start("missing", missing);
    let error = call(&servers, "missing:anything", json!({})).await.unwrap_err();
    assert!(error.contains("`/no/such/program` could not be run"), "{error}");
    servers.stop().await;
}

/// proves: the kernel bounds the size of an environment; the failure names the bound, and no part
/// of the environment.
#[tokio::test]
async fn s4_a_program_whose_environment_is_too_large_is_not_started() {
    let large = (0..12_000).map(|number| (format!("K{number:05}"), "small".to_owned())).collect();
    let servers = start("large", McpServer { env: large, ..program(&["-e", ""]) });
    let error = call(&servers, "large:anything", json!({})).await.unwrap_err();
    assert!(error.contains("must stay below 128 KiB") && error.len() < 1000, "{error}");
    servers.stop().await;
}

#[tokio::test]
async fn mcp_no_process_outlives_the_servers() {
    // A server with a child process of its own; the server ignores SIGTERM.
    let word = format!("outlives-{}", std::process::id());
    let script = format!(
        "require('child_process').spawn('node', ['-e', 'setInterval(() => {{}}, 1000)', '{word}'], \
         {{stdio: 'ignore'}}); process.on('SIGTERM', () => {{}}); setInterval(() => {{}}, 1000)"
    );
    let servers = start("deaf", program(&["-e", &script, &word]));
    eventually("both processes run", || processes(&word).len() == 2).await;
    servers.stop().await;
    eventually("both processes have ended", || processes(&word).is_empty()).await;
}

#[tokio::test]
async fn mcp_a_server_sees_nothing_of_the_workers_environment() {
    // It prints the names of its variables and ends.
    let script = "console.error(Object.keys(process.env).sort().join(' ')); process.exit(1)";
    let named = McpServer { env: BTreeMap::from([("GIVEN".into(), "1".into())]), ..program(&["-e", script]) };
    let servers = start("shy", named);
    let error = call(&servers, "shy:anything", json!({})).await.unwrap_err();
    assert!(error.ends_with("GIVEN HOME LANG PATH TMPDIR"), "{error}");
    servers.stop().await;
}

#[tokio::test]
async fn mcp_secrets_of_a_server_are_never_shown() {
    const SECRET: &str = "0123456789abcdefghij0123456789ABCDEFGHIJ";
    let root = std::env::temp_dir().join(format!("trellis-mcp-secret-{}", std::process::id()));
    let root = RemovedAtEnd::create(root);
    let log = root.0.join("log");
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_writer(Mutex::new(std::fs::File::create(&log).unwrap()))
        .finish();
    let _default = tracing::subscriber::set_default(subscriber);
    let given = |arguments: &[&str]| McpServer {
        env: BTreeMap::from([("API_KEY".into(), SECRET.into()), ("DEBUG".into(), "1".into())]),
        env_from: vec!["CARGO_MANIFEST_DIR".into()],
        ..program(arguments)
    };

    // In the output of a tool.
    let servers = start("everything", given(&[&package("server-everything"), "stdio"]));
    let output = call(&servers, "everything:get-env", json!({})).await.unwrap();
    for name in ["[API_KEY]", "[CARGO_MANIFEST_DIR]", "\"DEBUG\": \"1\""] {
        assert!(output.contains(name), "{output}");
    }
    assert!(!output.contains(SECRET) && !output.contains(env!("CARGO_MANIFEST_DIR")), "{output}");
    servers.stop().await;

    // In the error output, whole or cut in the middle.
    for after in [0, 2040, 2048, 2067, 2080] {
        // Another test may have reached the same line first, without a log, and the result would be
        // cached for all tests.
        tracing::callsite::rebuild_interest_cache();
        let script =
            format!("console.error(process.env.API_KEY + 'x'.repeat({after})); process.exitCode = 1");
        let env_from = Vec::new();
        let servers = start("chatty", McpServer { env_from, ..given(&["-e", &script]) });
        let error = call(&servers, "chatty:anything", json!({})).await.unwrap_err();
        assert!(error.contains("its last error output"), "{error}");
        assert!(!error.contains("HIJ"), "{after}: {error}");
        servers.stop().await;
    }
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(
        text.contains("an MCP server") && text.contains("is not running") && !text.contains("HIJ"),
        "{text}"
    );
}

#[test]
fn mcp_a_token_is_redacted_also_in_its_json_form() {
    let settings = McpServer {
        env: BTreeMap::from([("QUOTED".into(), "one\n\"two\"".into())]),
        token_env: Some("CARGO_MANIFEST_DIR".into()),
        ..program(&[])
    };
    let secrets = secrets::redactor(&settings, &Values::default());
    let text = format!("{}/src, one\n\"two\", {}", env!("CARGO_MANIFEST_DIR"), json!("one\n\"two\""));
    assert_eq!(secrets.text(text), "[CARGO_MANIFEST_DIR]/src, [QUOTED], \"[QUOTED]\"");
    assert_eq!(format!("{secrets:?}"), r#"{"[CARGO_MANIFEST_DIR]", "[QUOTED]"}"#);
}

/// The clock is paused, so the 20 s pass at once.
#[tokio::test(start_paused = true)]
async fn mcp_a_server_that_hangs_is_waited_for_once() {
    let hangs = "setInterval(() => {}, 1000)";
    let servers = start("deaf", program(&["-e", hangs]));
    servers.ready(|_| true).await;
    assert!(servers.ready(|_| true).now_or_never().is_some(), "a second call does not wait");
    servers.stop().await;
}

#[tokio::test]
async fn mcp_a_server_that_failed_once_delays_no_agent_while_it_restarts() {
    let word = format!("again-{}", std::process::id());
    let root = RemovedAtEnd::create(std::env::temp_dir().join(format!("trellis-mcp-{word}")));
    let been = root.0.join("been");
    // Ends at once the first time, and hangs from then on.
    let script = format!(
        "const fs = require('fs'); if (fs.existsSync('{0}')) setInterval(() => {{}}, 1000); \
         else fs.writeFileSync('{0}', '')",
        been.display()
    );
    let mut settings = program(&["-e", &script, &word]);
    settings.writes.push(root.0.to_str().unwrap().to_owned());
    let servers = start("deaf", settings);
    servers.ready(|_| true).await;
    assert!(
        matches!(*servers.named("deaf").unwrap().state.borrow(), State::Down(_)),
        "the failure is known at once"
    );
    let server = servers.named("deaf").unwrap();
    eventually("the server is restarted", || matches!(*server.state.borrow(), State::Starting)).await;
    assert!(servers.ready(|_| true).now_or_never().is_some());
    servers.stop().await;
}

#[tokio::test]
async fn mcp_a_call_that_times_out_is_reported_and_does_not_block_others() {
    let settings =
        McpServer { timeout_ms: Some(6_000), ..program(&[&package("server-everything"), "stdio"]) };
    let servers = start("everything", settings);
    servers.ready(|_| true).await;
    let long = json!({"duration": 60, "steps": 2});
    let slow = call(&servers, "everything:trigger-long-running-operation", long);
    let quick = async {
        let all = (0..20).map(|n| call(&servers, "everything:echo", json!({"message": n.to_string()})));
        futures_util::future::join_all(all).await
    };
    let (slow, quick) = tokio::join!(slow, quick);
    assert!(slow.unwrap_err().contains("did not answer within 6000 ms"));
    for (n, output) in quick.into_iter().enumerate() {
        assert_eq!(output, Ok(format!("Echo: {n}")));
    }
    servers.stop().await;
}

struct RemovedAtEnd(PathBuf);

impl RemovedAtEnd {
    fn create(path: PathBuf) -> Self {
        std::fs::create_dir_all(&path).unwrap();
        RemovedAtEnd(path)
    }
}

impl Drop for RemovedAtEnd {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
