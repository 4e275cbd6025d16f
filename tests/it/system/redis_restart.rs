//! A restart of Redis with the shipped configuration and the users of `trellis auth init`: every
//! key is as before (S1, N1), and `trellis doctor` and coordinators report users that make a
//! restart drop commits.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use bus::{Bus, Connect, Login, Nats};
use domain::{
    TraceId,
    span::Headers,
    subject::{Namespace, Subject},
    wire::SubmitAnswer,
};
use serde_json::json;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use trellis_tests::{
    cluster::{Client, eventually},
    processes::repository,
    servers::{NatsServer, RedisServer},
};

use super::roles::{Made, Running, trellis};

const SIZES: [&str; 4] = ["--max-log-bytes", "64MiB", "--max-queue-bytes", "32MiB"];
/// Concurrent clients that submit, and the number of accepted runs before a server is killed.
const CLIENTS: usize = 4;
const RUNS: usize = 40;
/// The time limit of one submission: its coordinator may be down.
const PATIENCE: Duration = Duration::from_secs(2);
/// The line of earlier builds for the user `default`, and the command that they did not give to
/// others.
const RESTRICTED: &str = "user default off resetpass resetkeys resetchannels -@all";
const ADDED: &str = " +acl|getuser";

/// Keys of Redis with their contents, in an order that does not depend on how Redis stores them.
type Keys = BTreeMap<Vec<u8>, Vec<Vec<u8>>>;

/// A Redis with the shipped configuration, these users, and one more, which may read everything.
fn redis(made: &Made, users: &str) -> RedisServer {
    let configuration = repository().join("deploy/redis.conf");
    RedisServer::start_from(&configuration.to_string_lossy(), &["--aclfile", write_users(made, users)])
}

fn write_users(made: &Made, users: &str) -> &'static str {
    let file = made.path("all-users.acl");
    std::fs::write(file, format!("{users}user reader on >reader ~* &* +@all\n")).unwrap();
    file
}

fn users(made: &Made) -> String {
    std::fs::read_to_string(made.path("redis-users.acl")).unwrap()
}

fn with_old_line(users: &str) -> String {
    let lines = users.lines().map(|line| if line.starts_with("user default ") { RESTRICTED } else { line });
    lines.map(|line| format!("{line}\n")).collect()
}

/// Connects as the user that only these tests have, once Redis has loaded its file. Until then
/// Redis answers the greeting of `RedisServer` and no commands.
async fn reader(server: &RedisServer) -> redis::Connection {
    let url = format!("redis://reader:reader@127.0.0.1:{}", server.port());
    let connect = || {
        let mut connection = redis::Client::open(url.as_str())?.get_connection()?;
        redis::cmd("PING").query::<String>(&mut connection)?;
        Ok::<_, redis::RedisError>(connection)
    };
    eventually("Redis has loaded its file", async || connect().is_ok()).await;
    connect().unwrap()
}

async fn stored(server: &RedisServer) -> Keys {
    let mut connection = reader(server).await;
    let names: Vec<Vec<u8>> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
    let mut keys = Keys::new();
    for name in names {
        let kind: String = redis::cmd("TYPE").arg(&name).query(&mut connection).unwrap();
        let mut ask = |command: &str, more: &[&str]| -> Vec<Vec<u8>> {
            redis::cmd(command).arg(&name).arg(more).query(&mut connection).unwrap()
        };
        let content = match kind.as_str() {
            "string" => ask("GETRANGE", &["0", "-1"]),
            "zset" => ask("ZRANGE", &["0", "-1", "WITHSCORES"]),
            "set" => {
                let mut members = ask("SMEMBERS", &[]);
                members.sort();
                members
            }
            "hash" => {
                let texts = ask("HGETALL", &[]);
                let mut pairs: Vec<&[Vec<u8>]> = texts.chunks(2).collect();
                pairs.sort();
                pairs.concat()
            }
            other => panic!("no coordinator writes a key of type {other}"),
        };
        keys.insert(name, content);
    }
    keys
}

/// The keys once Redis has run the commands that a killed coordinator sent.
async fn settled(server: &RedisServer) -> Keys {
    let mut before = stored(server).await;
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = stored(server).await;
        if now == before {
            return now;
        }
        before = now;
    }
}

#[track_caller]
fn assert_same(before: &Keys, after: &Keys) {
    let differ = |name: &&Vec<u8>| before.get(*name) != after.get(*name);
    let names = before.keys().chain(after.keys()).filter(differ);
    let names: Vec<_> = names.map(|name| String::from_utf8_lossy(name)).collect();
    assert!(names.is_empty(), "{} of {} keys changed: {names:?}", names.len(), before.len());
}

/// Clients that submit runs until they are stopped, while servers and coordinators come and go.
struct Load {
    accepted: Arc<Mutex<Vec<TraceId>>>,
    stop: CancellationToken,
    clients: TaskTracker,
}

impl Load {
    fn start(client: &Client) -> Self {
        let load =
            Load { accepted: Arc::default(), stop: CancellationToken::new(), clients: TaskTracker::new() };
        for _ in 0..CLIENTS {
            let (bus, accepted, stop) = (client.bus.clone(), load.accepted.clone(), load.stop.clone());
            load.clients.spawn(async move {
                let run = json!({"goal": "load", "agent_id": "sleep", "inputs": {"ms": 200}});
                let payload = serde_json::to_vec(&run).unwrap();
                while !stop.is_cancelled() {
                    let payload = payload.clone().into();
                    let asked = bus.request(&Subject::Submit, &Headers::new(), payload, PATIENCE).await;
                    if let Ok(answer) = asked
                        && let Ok(SubmitAnswer::Accepted(run)) = serde_json::from_slice(&answer)
                    {
                        accepted.lock().unwrap().push(run.trace_id);
                    }
                    tokio::time::sleep(Duration::from_millis(25)).await;
                }
            });
        }
        load.clients.close();
        load
    }

    fn accepted(&self) -> Vec<TraceId> {
        self.accepted.lock().unwrap().clone()
    }

    /// Waits until more runs are accepted.
    async fn more(&self) {
        let wanted = self.accepted().len() + RUNS;
        eventually("runs are accepted", async || self.accepted().len() >= wanted).await;
    }

    async fn stop(self) -> Vec<TraceId> {
        self.stop.cancel();
        self.clients.wait().await;
        self.accepted()
    }
}

async fn client(made: &Made, nats: &NatsServer) -> Client {
    let mut to = Connect::new(nats.url(), Namespace::default(), "client");
    to.login = Login { nkey: Some(made.path("keys/client.nk").into()), ..Login::default() };
    (to.inbox, to.js_api) = (Some("_INBOX_client".into()), Some("JS.API".into()));
    Client { bus: Bus::Nats(Nats::connect(&to).await.unwrap()) }
}

/// proves: a restart of Redis loses no commit. First the coordinator is killed in the middle of its
/// work, so that Redis is quiet, and all keys are compared across a kill of Redis. Then Redis is
/// killed under load: it has every accepted run. Coordinators that continue have nothing to
/// rebuild.
#[tokio::test(flavor = "multi_thread")]
async fn f16_n1_s1_redis_of_the_shipped_files_comes_back_with_every_key() {
    let made = Made::init();
    let nats = made.nats();
    let mut redis = redis(&made, &users(&made));
    let provisioned =
        trellis(&[&["provision"], &SIZES[..]].concat(), &made.connected("provisioner", &nats, &redis));
    assert!(provisioned.ends_with("exit Some(0)"), "{provisioned}");
    let environment = made.connected("coordinator", &nats, &redis);
    let coordinator = |name: &str| {
        let arguments = [&["coordinator", "--id", name], &SIZES[..]].concat();
        Running::start(name, &made.0, &arguments, &environment)
    };
    let worker = made.connected("worker-default", &nats, &redis);
    let _worker = Running::start("w1", &made.0, &["worker", "--id", "w1"], &worker);
    let client = client(&made, &nats).await;
    let load = Load::start(&client);

    let first = coordinator("c1");
    load.more().await;
    drop(first);
    let before = settled(&redis).await;
    redis.restart();
    assert_same(&before, &stored(&redis).await);

    let second = coordinator("c2");
    load.more().await;
    redis.kill();
    drop(second);
    let accepted = load.accepted();
    redis.restart();
    let after = stored(&redis).await;
    let has = |run: &TraceId| {
        let id = run.to_string();
        after.keys().any(|name| String::from_utf8_lossy(name).contains(&id))
    };
    let lost: Vec<_> = accepted.iter().filter(|run| !has(run)).collect();
    assert!(lost.is_empty(), "{} of {} accepted runs are lost: {lost:?}", lost.len(), accepted.len());
    redis.restart();
    assert_same(&after, &stored(&redis).await);

    let _third = coordinator("c3");
    load.more().await;
    for run in load.stop().await {
        client.outcome(run, &"root".parse().unwrap()).await;
    }
    for name in ["c1", "c2", "c3"] {
        let log = std::fs::read_to_string(made.path(&format!("{name}.log"))).unwrap();
        assert!(!log.contains("has lost acknowledged writes"), "{name} rebuilt what Redis has:\n{log}");
    }
}

/// The ACL files of earlier builds, complete and after the line was changed by hand.
#[tokio::test(flavor = "multi_thread")]
async fn s1_users_of_redis_that_lose_commits_are_reported() {
    let made = Made::init();
    let nats = made.nats();
    let written = users(&made);
    let cases = [
        (written.clone(), None),
        (with_old_line(&written), Some("a restart of Redis loses every commit")),
        (with_old_line(&written).replace(ADDED, ""), Some("a restart of Redis may lose every commit")),
        (written.replace(ADDED, ""), Some("a restart of Redis may lose every commit")),
    ];
    for (number, (users, problem)) in cases.into_iter().enumerate() {
        let redis = redis(&made, &users);
        let of = |who: &str| made.connected(who, &nats, &redis);
        let mut doctor: Vec<(String, String)> = vec![("REDIS_URL".into(), redis.url())];
        let password = made.path("keys/redis-doctor.password").to_owned();
        doctor.extend([("REDIS_USER".into(), "doctor".into()), ("REDIS_PASSWORD_FILE".into(), password)]);
        let printed = trellis(&["doctor"], &doctor);
        let (level, ending) = if problem.is_some() { ("fail ", "1") } else { ("ok   ", "0") };
        let found = problem.unwrap_or("the user `default` has all permissions");
        assert!(printed.contains(&format!("{level} redis-replay: {found}")), "{number}: {printed}");
        assert!(printed.ends_with(&format!("exit Some({ending})")), "{number}: {printed}");
        let line = "`user default off resetpass allkeys allchannels +@all`";
        assert_eq!(printed.contains(line), problem.is_some(), "{number}: {printed}");

        trellis(&[&["provision"], &SIZES[..]].concat(), &of("provisioner"));
        let name = format!("c{number}");
        let arguments = [&["coordinator", "--id", &name], &SIZES[..]].concat();
        let running = Running::start(&name, &made.0, &arguments, &of("coordinator"));
        let log = || std::fs::read_to_string(made.path(&format!("{name}.log"))).unwrap();
        eventually("the coordinator is up", async || log().contains("coordinator is up")).await;
        drop(running);
        let log = log();
        assert_eq!(log.contains("a restart of Redis"), problem.is_some(), "{number}: {log}");
        assert!(problem.is_none_or(|problem| log.contains(problem)), "{number}: {log}");
        assert!(
            !log.contains("can't be reached"),
            "{number}: a denied command was logged as an outage: {log}"
        );
    }
}

/// proves: the order of docs/upgrade.md. A restart under the old line drops a transaction from
/// memory, not from the append-only file.
#[tokio::test(flavor = "multi_thread")]
async fn s1_a_changed_line_for_the_default_user_brings_dropped_commits_back() {
    let made = Made::init();
    let written = users(&made);
    let mut redis = redis(&made, &with_old_line(&written));
    let mut commit = redis::pipe();
    commit.atomic().set("a", 1).set("b", 2);
    commit.exec(&mut reader(&redis).await).unwrap();
    let before = stored(&redis).await;
    assert_eq!(before.len(), 2);
    redis.restart();
    assert_eq!(stored(&redis).await, Keys::new());
    write_users(&made, &written);
    redis.restart();
    assert_same(&before, &stored(&redis).await);
}
