//! What an earlier version stored: `tests/samples/VERSION` has a directory that its program left, and what that program said of it. The
//! program of today says the same, and goes on with it.

use std::{fs, io::Read, path::PathBuf, process::Command, time::Duration};

use domain::wire::EndStatus;
use flate2::read::GzDecoder;
use serde_json::{Value, json};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use trellis_tests::{
    cluster::{Client, name},
    directory::Directory,
    processes::{binary, repository},
};

/// Nothing in a sample expires, however old it gets.
const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
/// Of a directory.
const PARTITIONS: u16 = 4;
/// The run of the sample that waits for an answer.
const WAITING: &str = "ccccccccccccccccccccccccccccccc3";

fn sample(file: &str) -> Vec<u8> {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "samples/0.1.0", file].iter().collect();
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What is written for people alone, and may be put in other words.
const WORDS: &str = "detail";

/// Whether a value has all of another: a later version may say more.
fn has(now: &Value, then: &Value) -> bool {
    match (now, then) {
        (Value::Object(now), Value::Object(then)) => {
            let is_same = |key: &str, now: &Value, then: &Value| key == WORDS || has(now, then);
            then.iter().all(|(key, then)| now.get(key).is_some_and(|now| is_same(key, now, then)))
        }
        (Value::Array(now), Value::Array(then)) => {
            now.len() == then.len() && now.iter().zip(then).all(|(now, then)| has(now, then))
        }
        (now, then) => now == then,
    }
}

/// What a command says, as JSON.
fn says(url: &str, arguments: &str) -> Value {
    let mut command = Command::new(binary());
    command.args(arguments.split(' ')).args(["-o", "json"]).current_dir(repository());
    let output = command.env_clear().env("TRELLIS_URL", url).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{arguments}: {said}{}", String::from_utf8_lossy(&output.stderr));
    read(said)
}

/// JSON, or lines of JSON, or a text.
fn read(said: String) -> Value {
    let lines =
        || said.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>().map(Value::Array);
    serde_json::from_str(&said).or_else(|_| lines()).unwrap_or(Value::String(said))
}

/// proves: lists, journals, receipts, files, agents, kept graphs and schedules of a directory of 0.1.0 are read as its own program
/// read them, and the run that waited has its answer and ends.
#[tokio::test(flavor = "multi_thread")]
async fn n9_a_directory_of_the_version_before_is_read_and_goes_on() {
    let directory = Directory::fresh();
    fs::create_dir_all(directory.path()).unwrap();
    let mut data = Vec::new();
    GzDecoder::new(&sample("trellis.redb.gz")[..]).read_to_end(&mut data).unwrap();
    fs::write(directory.path().join("trellis.redb"), data).unwrap();

    let mut config = coordinator::Config::new(name("coordinator"));
    config.topology.partitions = PARTITIONS;
    (config.topology.keep_logs, config.topology.keep_journals, config.retention) =
        (CENTURY, CENTURY, CENTURY);
    config.schedules = false;
    // Without a key, as every directory.
    let (bus, store) = directory.both(PARTITIONS).await;
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let coordinator = coordinator::run(config, bus.clone(), store, stop.clone().cancelled_owned());
    tasks.spawn(async move { coordinator.await.unwrap() });
    let worker =
        worker::run(worker::Config::new(name("worker")), bus.clone(), stop.clone().cancelled_owned());
    tasks.spawn(async move { worker.await.unwrap() });
    let client = Client { bus };
    let mut front = gateway::Config::new("127.0.0.1:0".parse().unwrap());
    front.is_open = true;
    let server = gateway::Server::bind(front, client.bus.clone()).await.unwrap();
    let url = format!("http://{}", server.address());
    let serving = server.serve(stop.clone().cancelled_owned());
    tasks.spawn(async move { serving.await.unwrap() });
    client.run(json!({"goal": "the deployment is there once something was run on it"})).await;

    let then: Value = serde_json::from_slice(&sample("said.json")).unwrap();
    let then = then.as_object().unwrap();
    assert!(then.len() > 10, "{then:?}");
    for (command, then) in then {
        let now = says(&url, command);
        assert!(has(&now, then), "{command}: it was\n{then:#}\nand is\n{now:#}");
    }
    let listed = says(&url, "runs list --limit 100").to_string();
    let runs = then.keys().filter_map(|command| command.strip_prefix("receipt "));
    assert!(runs.clone().count() >= 2 && runs.clone().all(|run| listed.contains(run)), "{listed}");

    says(&url, &format!("answer {WAITING}/ask approve"));
    let run = WAITING.parse().unwrap();
    let root = client.trace(run).await.root().unwrap().id.clone();
    assert_eq!(client.outcome(run, &root).await.context.status, EndStatus::Completed);
    for run in runs.chain([WAITING]) {
        says(&url, &format!("audit {run}"));
    }
    stop.cancel();
    tasks.close();
    tasks.wait().await;
}
