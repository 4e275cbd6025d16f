//! Permissions of the roles (S1), on servers started from the files of `trellis auth init`: every
//! pair of a role and a subject, a call or a command is allowed or denied as the tables here list,
//! and a whole run works with every process under its own role.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_nats::{Event, ServerError};
use futures_util::StreamExt;
use serde_json::json;
use trellis_tests::{
    cluster::{SOON, eventually},
    processes::binary,
    servers::{ModelServer, NatsServer, RedisServer, free_port},
};

use crate::{agents, conformance::logins::Certificates};

/// A letter for each role, as the tables write them: provisioner, coordinator, worker of the pool
/// `default`, client, observer, administrator.
const ROLES: [(char, &str); 6] = [
    ('P', "provisioner"),
    ('K', "coordinator"),
    ('W', "worker-default"),
    ('C', "client"),
    ('O', "observer"),
    ('A', "admin"),
];

/// The subjects and the roles that may publish to them.
const PUBLISH: &[(&str, &str)] = &[
    ("agent.spawn", "C"),
    ("agent.graph", "C"),
    ("agent.cancel", "CAK"),
    ("agent.input", "C"),
    ("agent.submit", "CK"),
    ("agent.steer", "C"),
    ("agent.query.runs", "COA"),
    ("agent.query.agents", "COA"),
    ("agent.query.coordinators", "COA"),
    ("agent.query.schedules", "COA"),
    ("agent.query.graphs", "COA"),
    ("agent.query.anything", ""),
    ("agent.query", ""),
    ("agent.control", ""),
    ("agent.worker", "COA"),
    ("agent.admin.apply", "A"),
    ("agent.admin.schedules", "A"),
    ("agent.admin.graphs", "A"),
    ("agent.admin.raise", "A"),
    ("agent.admin.charge", "A"),
    ("agent.admin.delete", "A"),
    ("agent.admin.restore", "A"),
    ("agent.admin.dispute", "A"),
    ("agent.admin.drain", "A"),
    ("agent.admin.other", ""),
    ("agent.spawn.execute.default", "K"),
    ("agent.spawn.execute.gpu", "K"),
    ("agent.ask.default.p00", "W"),
    ("agent.ask.gpu.p00", ""),
    ("agent.result.default.p00.t.c", "W"),
    ("agent.result.gpu.p00.t.c", ""),
    ("agent.cost.default.p00.t.c", "W"),
    ("agent.cost.gpu.p00.t.c", ""),
    ("agent.stop.t", "K"),
    ("agent.drain", "K"),
    ("agent.audit.apply", "K"),
    ("agent.event.t.c", "K"),
    ("agent.outcome.t.c", "K"),
    ("agent.question.t.c", "K"),
    ("agent.history.default.t.c", "W"),
    ("agent.history.gpu.t.c", ""),
    ("agent.history.t.c", ""),
    ("agent.stream.t.c", "W"),
    ("agent.dead.spawn", "KW"),
    ("agent.profile.a", "K"),
    ("agent.schedule.a", "K"),
    ("agent.ticks.a", "K"),
    ("agent.kept.a", "K"),
    ("agent.new.thing", ""),
    ("$JS.API.INFO", "K"),
    ("$JS.API.STREAM.CREATE.AGENT_EVENT", "P"),
    ("$JS.API.STREAM.UPDATE.AGENT_EVENT", "P"),
    ("$JS.API.STREAM.INFO.AGENT_EVENT", "PK"),
    ("$JS.API.STREAM.PURGE.AGENT_EVENT", "K"),
    ("$JS.API.STREAM.MSG.GET.AGENT_EVENT", "K"),
    ("$JS.API.STREAM.MSG.DELETE.AGENT_EVENT", "K"),
    ("$JS.API.STREAM.DELETE.AGENT_EVENT", ""),
    ("$JS.API.STREAM.CREATE.ANOTHER", ""),
    ("$JS.API.STREAM.NAMES", ""),
    ("$JS.API.STREAM.LIST", ""),
    ("$JS.API.STREAM.SNAPSHOT.AGENT_EVENT", ""),
    ("$JS.API.STREAM.RESTORE.AGENT_EVENT", ""),
    ("$JS.API.STREAM.LEADER.STEPDOWN.AGENT_EVENT", ""),
    ("$JS.API.DIRECT.GET.AGENT_EVENT", "K"),
    ("$JS.API.CONSUMER.CREATE.AGENT_EVENT.any", "K"),
    ("$JS.API.CONSUMER.CREATE.AGENT_EXECUTE.execute_gpu", "PK"),
    ("$JS.API.CONSUMER.CREATE.AGENT_INTAKE.intake", "P"),
    ("$JS.API.CONSUMER.CREATE.AGENT_HISTORY.any", ""),
    ("$JS.API.CONSUMER.CREATE.AGENT_EVENT", ""),
    ("$JS.API.CONSUMER.DURABLE.CREATE.AGENT_EXECUTE.any", ""),
    ("$JS.API.CONSUMER.DELETE.AGENT_EXECUTE.execute_default", ""),
    ("$JS.API.CONSUMER.MSG.NEXT.AGENT_INTAKE.intake", "K"),
    ("$JS.API.CONSUMER.MSG.NEXT.AGENT_EXECUTE.execute_default", ""),
    ("JS.API.CONSUMER.MSG.NEXT.AGENT_EXECUTE.execute_default", "W"),
    ("JS.API.CONSUMER.MSG.NEXT.AGENT_EXECUTE.execute_gpu", ""),
    ("JS.API.CONSUMER.INFO.AGENT_EXECUTE.execute_default", "W"),
    ("JS.API.CONSUMER.INFO.AGENT_EXECUTE.execute_gpu", ""),
    ("JS.API.CONSUMER.CREATE.AGENT_EVENT.any", ""),
    ("JS.API.CONSUMER.CREATE.AGENT_EXECUTE.execute_default", ""),
    ("JS.API.STREAM.INFO.AGENT_EVENT", "COA"),
    ("JS.API.STREAM.MSG.GET.AGENT_EVENT", "COA"),
    ("JS.API.DIRECT.GET.AGENT_EVENT", "COA"),
    ("JS.API.STREAM.MSG.GET.AGENT_HISTORY", "WCOA"),
    ("JS.API.DIRECT.GET.AGENT_HISTORY", "WCOA"),
    ("JS.API.DIRECT.GET.OBJ_AGENT_OUTPUTS", "WCOA"),
    ("JS.API.DIRECT.GET.AGENT_DEAD", "A"),
    ("JS.API.STREAM.MSG.DELETE.AGENT_DEAD", "A"),
    ("JS.API.STREAM.MSG.DELETE.AGENT_EVENT", ""),
    ("JS.API.STREAM.MSG.DELETE.AGENT_AUDIT", ""),
    ("JS.API.STREAM.PURGE.AGENT_DEAD", ""),
    ("JS.API.DIRECT.GET.AGENT_AUDIT", "A"),
    ("JS.API.STREAM.MSG.GET.AGENT_AUDIT", "A"),
    ("$JS.API.STREAM.CREATE.AGENT_AUDIT", "P"),
    ("JS.API.DIRECT.GET.AGENT_INTAKE", ""),
    ("JS.API.DIRECT.GET.AGENT_PROFILE", ""),
    ("JS.API.STREAM.PURGE.AGENT_EVENT", ""),
    ("JS.API.STREAM.PURGE.OBJ_AGENT_OUTPUTS", ""),
    ("JS.API.STREAM.DELETE.AGENT_EVENT", ""),
    ("JS.API.STREAM.CREATE.AGENT_EVENT", ""),
    ("$JS.ACK.AGENT_EXECUTE.execute_default.1.1.1.1.0", "W"),
    ("$JS.ACK.AGENT_EXECUTE.execute_gpu.1.1.1.1.0", ""),
    ("$JS.ACK.AGENT_INTAKE.intake.1.1.1.1.0", "K"),
    ("$O.AGENT_OUTPUTS.M.x", "KW"),
    ("$O.AGENT_OUTPUTS.C.x", "KW"),
    ("$O.AGENT_CORE.M.x", "K"),
    ("$O.AGENT_CORE.C.x", "K"),
    ("$JS.API.STREAM.PURGE.OBJ_AGENT_CORE", "K"),
    ("$JS.API.STREAM.CREATE.OBJ_AGENT_CORE", "P"),
    ("JS.API.DIRECT.GET.OBJ_AGENT_CORE", "WCOA"),
    ("JS.API.STREAM.PURGE.OBJ_AGENT_CORE", ""),
    ("$O.AGENT_ANSWERS.M.x", "K"),
    ("$JS.API.STREAM.CREATE.OBJ_AGENT_ANSWERS", "P"),
    ("JS.API.DIRECT.GET.OBJ_AGENT_ANSWERS", "WCOA"),
    ("JS.API.STREAM.PURGE.OBJ_AGENT_ANSWERS", ""),
    ("JS.API.STREAM.MSG.DELETE.OBJ_AGENT_OUTPUTS", ""),
    ("$O.OTHER.M.x", ""),
    ("$KV.any.key", ""),
    ("$SRV.PING", "K"),
    ("$SYS.REQ.SERVER.PING", ""),
    ("$SYS.REQ.USER.INFO", "PKWCOA"),
    ("_INBOX.x", ""),
    ("_INBOX_client.x", "C"),
    ("_INBOX_coordinator.x", "K"),
    ("_INBOX_worker-default.x", "W"),
    ("_R_.x.y", "KW"),
];

/// The subjects and the roles that may subscribe to them.
const SUBSCRIBE: &[(&str, &str)] = &[
    ("agent.submit", "K"),
    ("agent.steer", "K"),
    ("agent.query.runs", "K"),
    ("agent.admin.apply", "K"),
    ("agent.admin.raise", ""),
    ("agent.admin.drain", "K"),
    ("agent.drain", "W"),
    ("agent.audit.*", "A"),
    ("agent.ask.*.p00", "K"),
    ("agent.worker", "W"),
    ("agent.stop.*", "W"),
    ("agent.event.*.*", "COA"),
    ("agent.outcome.*.*", "COA"),
    ("agent.question.*.*", "COA"),
    ("agent.history.*.*.*", "COA"),
    ("agent.stream.*.*", "COA"),
    ("agent.dead.*", "A"),
    ("agent.schedule.*", "K"),
    ("agent.ticks.*", "K"),
    ("agent.profile.*", ""),
    ("agent.kept.*", ""),
    ("agent.spawn", ""),
    ("agent.spawn.execute.*", ""),
    ("agent.result.>", ""),
    ("agent.cost.>", ""),
    ("agent.>", ""),
    (">", ""),
    ("$JS.>", ""),
    ("$O.>", ""),
    ("$SYS.>", ""),
    ("$SRV.PING", "K"),
    ("_INBOX.>", ""),
    ("_INBOX_client.>", "C"),
    ("_INBOX_coordinator.>", "K"),
    ("_INBOX_worker-default.>", "W"),
    ("_R_.>", ""),
];

/// The commands of Redis and their permitted users: the coordinator (K) and `doctor` (D). Keys of
/// another deployment are forbidden to both.
const REDIS: &[(&str, &str)] = &[
    ("PING", "KD"),
    ("TIME", "K"),
    ("GET trellis:x", "K"),
    ("SET trellis:x 1", "K"),
    ("GET other", ""),
    ("SET other 1", ""),
    ("GET team:trellis:x", ""),
    ("HSET trellis:h a 1", "K"),
    ("HGETALL trellis:h", "K"),
    ("HGETALL other", ""),
    ("ZADD trellis:z 1 a", "K"),
    ("DEL trellis:z", "K"),
    ("EVAL return(1) 0", "K"),
    ("EVAL return(redis.call('GET','other')) 0", ""),
    ("EVAL return(redis.call('CONFIG','GET','dir')) 0", ""),
    ("EVAL return(redis.call('KEYS','*')) 0", ""),
    ("INFO", "D"),
    ("CONFIG GET dir", "D"),
    ("CONFIG SET dir /tmp", ""),
    ("FLUSHALL", ""),
    ("FLUSHDB", ""),
    ("KEYS *", ""),
    ("SCAN 0", ""),
    ("DBSIZE", ""),
    ("ACL GETUSER default", "KD"),
    ("ACL LIST", ""),
    ("ACL LOAD", "D"),
    ("ACL SAVE", ""),
    ("ACL WHOAMI", ""),
    ("ACL SETUSER x on nopass ~* +@all", ""),
    ("SHUTDOWN NOSAVE", ""),
    ("REPLICAOF 127.0.0.1 1", ""),
    ("MODULE LIST", ""),
    ("DEBUG SLEEP 0", ""),
    ("CLIENT LIST", ""),
    ("MONITOR", ""),
    ("SUBSCRIBE x", ""),
    ("PUBLISH x y", ""),
    ("SAVE", ""),
    ("SCRIPT FLUSH", ""),
];

/// The files of a deployment, made by the command line.
pub(super) struct Made(pub(super) PathBuf);

impl Made {
    pub(super) fn init() -> Self {
        let dir = std::env::temp_dir().join(format!("trellis-auth-{}", uuid::Uuid::new_v4().simple()));
        let made = Made(dir);
        let said = trellis(&["auth", "init", made.path(""), "--pool", "default", "--pool", "gpu"], &[]);
        assert!(said.ends_with("exit Some(0)"), "{said}");
        made
    }

    pub(super) fn path(&self, name: &str) -> &'static str {
        self.0.join(name).to_string_lossy().into_owned().leak()
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn seed(&self, who: &str) -> String {
        self.read(&format!("keys/{who}.nk")).trim().to_owned()
    }

    /// The variables of a user, as a shell would set them.
    pub(super) fn environment(&self, who: &str) -> Vec<(String, String)> {
        let text = self.read(&format!("keys/{who}.env"));
        let pair = |line: &str| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        text.lines().filter_map(pair).collect()
    }

    /// The same, with the addresses of the servers.
    pub(super) fn connected(
        &self,
        who: &str,
        nats: &NatsServer,
        redis: &RedisServer,
    ) -> Vec<(String, String)> {
        let mut environment = self.environment(who);
        environment.push(("NATS_URL".into(), nats.url()));
        environment.push(("REDIS_URL".into(), redis.url()));
        environment
    }

    pub(super) fn nats(&self) -> NatsServer {
        NatsServer::start_with("", &self.read("nats-auth.conf"))
    }

    pub(super) fn redis(&self) -> RedisServer {
        RedisServer::start_with(&["--aclfile", self.path("redis-users.acl")])
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(super) fn trellis(arguments: &[&str], environment: &[(String, String)]) -> String {
    let mut command = Command::new(binary());
    let output = command.args(arguments).env_clear().envs(environment.iter().cloned()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{} exit {:?}", text(&output.stdout), text(&output.stderr), output.status.code())
}

/// A connection of a role that remembers its denials.
pub(super) struct Tried {
    pub(super) client: async_nats::Client,
    denied: Arc<Mutex<BTreeSet<String>>>,
}

impl Tried {
    pub(super) async fn connect(made: &Made, nats: &NatsServer, who: &str) -> Self {
        let denied: Arc<Mutex<BTreeSet<String>>> = Arc::default();
        let heard = denied.clone();
        let client = async_nats::ConnectOptions::with_nkey(made.seed(who))
            .custom_inbox_prefix(format!("_INBOX_{who}"))
            .event_callback(move |event| {
                if let Event::ServerError(ServerError::Other(said)) = event
                    && said.contains("Violation")
                    && let Some(subject) = said.split('"').nth(1)
                {
                    heard.lock().unwrap().insert(subject.to_owned());
                }
                std::future::ready(())
            })
            .connect(nats.url())
            .await
            .unwrap_or_else(|error| panic!("{who}: {error}"));
        Tried { client, denied }
    }

    /// Waits until the server has answered everything that was sent.
    pub(super) async fn settled(&self) {
        let inbox = self.client.new_inbox();
        let mut echo = self.client.subscribe(inbox.clone()).await.unwrap();
        self.client.publish(inbox, "".into()).await.unwrap();
        tokio::time::timeout(SOON, echo.next()).await.expect("the role may use its own inbox");
        tokio::time::sleep(Duration::from_millis(30)).await;
    }

    fn denied(&self) -> BTreeSet<String> {
        self.denied.lock().unwrap().clone()
    }
}

fn expected(table: &[(&'static str, &str)], letter: char) -> BTreeSet<String> {
    table.iter().filter(|(_, may)| !may.contains(letter)).map(|(subject, _)| (*subject).to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn s1_every_role_may_do_what_the_table_says_and_nothing_else() {
    let made = Made::init();
    let (nats, redis) = (made.nats(), made.redis());
    let mut pairs = 0;
    for (letter, who) in ROLES {
        let tried = Tried::connect(&made, &nats, who).await;
        for some in PUBLISH.chunks(16) {
            for (subject, _) in some {
                tried.client.publish(*subject, "".into()).await.unwrap();
                pairs += 1;
            }
            tried.settled().await;
        }
        assert_eq!(tried.denied(), expected(PUBLISH, letter), "the subjects to which {who} may not publish");
        let tried = Tried::connect(&made, &nats, who).await;
        let mut held = Vec::new();
        for some in SUBSCRIBE.chunks(16) {
            for (subject, _) in some {
                held.push(tried.client.subscribe(*subject).await.unwrap());
                pairs += 1;
            }
            tried.settled().await;
        }
        assert_eq!(
            tried.denied(),
            expected(SUBSCRIBE, letter),
            "the subjects to which {who} may not subscribe"
        );
    }
    for (letter, user) in [('K', "coordinator"), ('D', "doctor")] {
        let password = made.read(&format!("keys/redis-{user}.password"));
        let url = format!("redis://{user}:{}@127.0.0.1:{}", password.trim(), redis.port());
        let client = redis::Client::open(url).unwrap();
        for (line, may) in REDIS {
            let mut connection = client.get_connection().unwrap_or_else(|error| panic!("{user}: {error}"));
            let mut words = line.split(' ');
            let mut command = redis::cmd(words.next().unwrap());
            words.for_each(|word| {
                command.arg(word);
            });
            let said = command.query::<redis::Value>(&mut connection);
            let denied = said.as_ref().is_err_and(|error| {
                let said = format!("{error:?} {error}");
                ["NOPERM", "NoPerm", "permission", "ACL failure", "can't run", "can't access", "not allowed"]
                    .iter()
                    .any(|part| said.contains(part))
            });
            assert_eq!(!denied, may.contains(letter), "{user}: {line}: {said:?}");
            pairs += 1;
        }
    }
    // A connection without a key or a password fails.
    assert!(async_nats::connect(nats.url()).await.is_err());
    let nobody = redis::Client::open(redis.url())
        .unwrap()
        .get_connection()
        .and_then(|mut connection| redis::cmd("PING").query::<String>(&mut connection));
    assert!(nobody.is_err(), "{nobody:?}");
    assert!(pairs >= 300, "{pairs}");
}

/// The reflection of a stored message: a role that may store and read back a message names a
/// subject that it may not publish to as the reply subject.
#[tokio::test(flavor = "multi_thread")]
async fn s1_nothing_stored_is_reflected_to_a_subject_that_its_writer_may_not_send_to() {
    let made = Made::init();
    let nats = made.nats();
    let mut environment = made.environment("provisioner");
    environment.push(("NATS_URL".into(), nats.url()));
    let said =
        trellis(&["provision", "--max-log-bytes", "64MiB", "--max-queue-bytes", "32MiB"], &environment);
    assert!(said.ends_with("exit Some(0)"), "{said}");
    let worker = Tried::connect(&made, &nats, "worker-default").await;
    let raise = json!({"trace_id": "01a1ddcda3557598806f1680da015d36",
        "raise": {"child_id": "root", "max_cost_usd": 500_000}});
    let stored = worker.client.request("agent.history.default.t.c", raise.to_string().into()).await.unwrap();
    assert!(String::from_utf8_lossy(&stored.payload).contains("AGENT_HISTORY"), "{stored:?}");
    let observer = Tried::connect(&made, &nats, "observer").await;
    for (who, tried) in [("worker", &worker), ("observer", &observer)] {
        for (call, body) in [
            ("JS.API.DIRECT.GET.AGENT_HISTORY", json!({"seq": 1})),
            (
                "JS.API.DIRECT.GET.AGENT_HISTORY",
                json!({"seq": 1, "batch": 1, "next_by_subj": "agent.history.>"}),
            ),
            ("JS.API.STREAM.MSG.GET.AGENT_HISTORY", json!({"seq": 1})),
        ] {
            for reply in ["agent.admin.raise", "agent.event.t.c", "agent.spawn", "agent.submit"] {
                let sent = tried.client.publish_with_reply(call, reply, body.to_string().into()).await;
                sent.unwrap_or_else(|error| panic!("{who}: {error}"));
            }
        }
        tried.settled().await;
    }
    let coordinator = Tried::connect(&made, &nats, "coordinator").await;
    for stream in ["AGENT_INTAKE", "AGENT_EVENT", "AGENT_REPORT"] {
        let info =
            coordinator.client.request(format!("$JS.API.STREAM.INFO.{stream}"), "".into()).await.unwrap();
        let info: serde_json::Value = serde_json::from_slice(&info.payload).unwrap();
        assert_eq!(info["state"]["last_seq"], 0, "{stream}: {info}");
    }
}

/// A process that ends with the test.
pub(super) struct Running(Child, PathBuf);

impl Running {
    pub(super) fn start(
        name: &str,
        dir: &Path,
        arguments: &[&str],
        environment: &[(String, String)],
    ) -> Self {
        let log = dir.join(format!("{name}.log"));
        let file = std::fs::File::create(&log).unwrap();
        let child = Command::new(binary())
            .args(arguments)
            .env_clear()
            .envs(environment.iter().cloned())
            .env("RUST_LOG", "info")
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn();
        Running(child.unwrap(), log)
    }
}

impl Drop for Running {
    #[expect(clippy::print_stderr, reason = "a failed test prints the log")]
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
        if std::thread::panicking() {
            let text = std::fs::read_to_string(&self.1).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            eprintln!("---- {}\n{}", self.1.display(), lines[lines.len().saturating_sub(25)..].join("\n"));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s1_a_whole_run_works_with_every_process_under_its_own_role() {
    let made = Made::init();
    let (nats, redis) = (made.nats(), made.redis());
    let model = ModelServer::start(|prompt| match prompt.turn() {
        0 => agents::call("ask_human", json!({"question": "Which colour?"})),
        _ => agents::say(&prompt.last()),
    })
    .await;
    let config = made.0.join("worker.json");
    let mut settings = model.settings();
    settings["workspaces"] = json!(made.0.join("workspaces"));
    std::fs::write(&config, settings.to_string()).unwrap();
    let environment = |who: &str| made.connected(who, &nats, &redis);
    let as_role = |who: &str, arguments: &[&str]| trellis(arguments, &environment(who));
    let sizes = ["--max-log-bytes", "64MiB", "--max-queue-bytes", "32MiB"];
    // A coordinator may not make the streams, and names the role that may.
    let refused = as_role("coordinator", &[&["coordinator"], &sizes[..]].concat());
    assert!(refused.contains("$JS.API.STREAM.CREATE"), "{refused}");
    let made_streams = as_role("provisioner", &[&["provision"], &sizes[..]].concat());
    assert!(made_streams.ends_with("exit Some(0)"), "{made_streams}");

    let coordinator = [&["coordinator", "--id", "c1"], &sizes[..]].concat();
    let _coordinator = Running::start("c1", &made.0, &coordinator, &environment("coordinator"));
    let worker = ["worker", "--id", "w1", "--config", &config.to_string_lossy()];
    let _worker = Running::start("w1", &made.0, &worker, &environment("worker-default"));
    eventually("the worker is listed", async || as_role("observer", &["workers", "list"]).contains("w1"))
        .await;

    let profiles = made.0.join("agents.json");
    let painter = json!([{"agent_id": "painter", "kind": "llm", "model": "test/model", "tools": ["ask_human"]},
        {"agent_id": "elsewhere", "kind": "builtin", "builtin": "echo", "pool": "gpu"}]);
    std::fs::write(&profiles, painter.to_string()).unwrap();
    let profiles = profiles.to_string_lossy().into_owned();
    let refused = as_role("client", &["agents", "apply", &profiles]);
    assert!(
        refused.contains("do not permit to publish to `agent.admin.apply`") && refused.contains("admin"),
        "{refused}"
    );
    let mut found = Found::default();
    found.check("a denial is a refusal", &refused, refused.ends_with("exit Some(3)"));
    let applied = as_role("admin", &["agents", "apply", &profiles]);
    assert!(applied.ends_with("exit Some(0)"), "{applied}");

    let echoed = as_role("client", &["run", "--goal", "hello"]);
    assert!(echoed.contains("hello") && echoed.ends_with("exit Some(0)"), "{echoed}");
    let mut without = environment("client");
    without.retain(|(name, _)| name != "NATS_JS_API");
    let refused = trellis(&["runs", "show", "@last"], &without);
    assert!(refused.contains("hint: set NATS_JS_API=JS.API"), "{refused}");
    let refused = as_role("observer", &["submit", "--goal", "hello"]);
    assert!(
        refused.contains("do not permit to publish to `agent.submit`") && refused.contains("client"),
        "{refused}"
    );

    let submitted =
        as_role("client", &["submit", "--goal", "paint", "--agent", "painter", "--max-cost-usd", "1"]);
    let trace = submitted
        .lines()
        .find_map(|line| line.strip_prefix("trace_id "))
        .unwrap_or_else(|| panic!("{submitted}"));
    let described = || as_role("observer", &["runs", "show", trace]);
    eventually("the agent asks a question", async || described().contains("Which colour?")).await;
    let refused = as_role("client", &["budgets", "raise", trace, "--max-cost-usd", "2"]);
    assert!(
        refused.contains("do not permit to publish to") && refused.contains("permission: admin"),
        "{refused}"
    );
    let raised = as_role("admin", &["budgets", "raise", trace, "--max-cost-usd", "2"]);
    assert!(raised.ends_with("exit Some(0)"), "{raised}");
    let answered = as_role("client", &["answer", trace, "blue"]);
    assert!(answered.ends_with("exit Some(0)"), "{answered}");
    eventually("the run ends", async || described().contains("completed")).await;
    let events = as_role("observer", &["events", trace]);
    assert!(events.contains("raised") && events.ends_with("exit Some(0)"), "{events}");
    let history = as_role("observer", &["history", trace]);
    assert!(history.ends_with("exit Some(0)"), "{history}");
    let listed = as_role("observer", &["runs", "list"]);
    assert!(listed.contains("completed"), "{listed}");
    let drained = as_role("client", &["workers", "drain", "w1"]);
    assert!(drained.contains("do not permit to publish to `agent.admin.drain`"), "{drained}");
    let asked = as_role("observer", &["doctor"]);
    assert!(asked.contains("ok    nats-role: observer, in the account OBSERVER"), "{asked}");
    assert!(asked.contains("that this role may read exist"), "{asked}");
    // A query that a role may not make is not reported as a failure.
    for who in ["provisioner", "coordinator", "worker-default"] {
        let mut environment = environment(who);
        environment.retain(|(name, _)| name != "REDIS_URL");
        let asked = trellis(&["doctor"], &environment);
        let good = asked.contains("-     coordinators: not checked: this role may not ask")
            && asked.contains("-     workers: not checked")
            && !asked.contains("all 0 that")
            && !asked.contains("\nfail")
            && asked.ends_with("exit Some(0)");
        found.check("doctor with the key of another role", &asked, good);
    }
    found.check("the log has the hash of a token", &events, events.contains("token_hash "));
    one_shell(&made, &mut found);
    rotated(&made, &mut found);
    let submitted = as_role("client", &["submit", "--goal", "wait", "--agent", "elsewhere"]);
    let waits = submitted.lines().find_map(|line| line.strip_prefix("trace_id ")).unwrap_or_default();
    let asked = as_role("observer", &["runs", "show", waits]);
    let good = asked.contains("waits for a worker of the pool `gpu`: none answers")
        && asked.contains("worker --pool gpu");
    found.check("a run waits for a pool without workers", &asked, good);
    let refused = as_role("admin", &["runs", "delete", waits, "--yes"]);
    let good = refused.contains("which is live") && refused.contains("hint: --force cancels");
    found.check("what is live is deleted by force", &refused, good);
    let deleted = as_role("admin", &["runs", "delete", waits, "--force", "--yes"]);
    assert!(deleted.ends_with("exit Some(0)"), "{deleted}");
    let asked = as_role("observer", &["runs", "show", waits]);
    found.check("what was deleted is said to be", &asked, asked.contains("the cost stays: elsewhere"));
    found.all();
    let mut doctor = environment("observer");
    let password = made.path("keys/redis-doctor.password").to_owned();
    doctor.extend([("REDIS_USER".into(), "doctor".into()), ("REDIS_PASSWORD_FILE".into(), password)]);
    let asked = trellis(&["doctor"], &doctor);
    assert!(asked.contains("ok    redis-users: a login is required"), "{asked}");
    let open = RedisServer::start();
    let asked = trellis(&["doctor"], &[("REDIS_URL".into(), open.url())]);
    assert!(asked.contains("warn  redis-users: answers without a login"), "{asked}");
    let another = as_role("worker-gpu", &["worker", "--pool", "default"]);
    assert!(
        another.contains("do not permit to publish to `JS.API.CONSUMER.INFO.AGENT_EXECUTE.execute_default`"),
        "{another}"
    );
    assert_eq!(model.bill().len(), 2);

    // Coordinators submit the runs of schedules, and cancel them.
    let schedule = made.0.join("often.json");
    let task = json!({"agent_id": "painter", "goal": "paint", "max_cost_usd": 0.5});
    let often = json!({"name": "often", "cron": "0 0 1 1 *", "overlap": "cancel_previous", "task": task});
    std::fs::write(&schedule, often.to_string()).unwrap();
    let put = as_role("admin", &["schedules", "apply", &schedule.to_string_lossy()]);
    assert!(put.ends_with("exit Some(0)"), "{put}");
    for statuses in [["input_required"].as_slice(), &["input_required", "cancelled"]] {
        let ran = as_role("admin", &["schedules", "run", "often"]);
        assert!(ran.ends_with("exit Some(0)"), "{ran}");
        let runs = || as_role("observer", &["runs", "list", "--label", "schedule=often"]);
        eventually("the runs are listed", async || statuses.iter().all(|status| runs().contains(status)))
            .await;
    }
    // An administrator may cancel a run that spends money.
    let cancelled = as_role("admin", &["runs", "cancel", "@last"]);
    assert!(cancelled.ends_with("exit Some(0)"), "{cancelled}");
}

/// All failed checks together.
#[derive(Default)]
struct Found(Vec<String>);

impl Found {
    fn check(&mut self, what: &str, said: &str, good: bool) {
        if !good {
            self.0.push(format!("{what}:\n{said}"));
        }
    }

    fn all(self) {
        assert!(self.0.is_empty(), "{}", self.0.join("\n----\n"));
    }
}

/// A shell that reads the variables of one user after those of another keeps none of the first.
fn one_shell(made: &Made, found: &mut Found) {
    let names = |who: &str| made.environment(who).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    for (_, who) in ROLES {
        found.check("the same variables", who, names(who) == names("coordinator"));
        let read = format!(
            "set -a; . {}; . {}; env",
            made.path("keys/coordinator.env"),
            made.path(&format!("keys/{who}.env"))
        );
        let shell = Command::new("/bin/sh").args(["-c", &read]).env_clear().output().unwrap();
        let has = String::from_utf8_lossy(&shell.stdout).into_owned();
        let kept = |name: &str| has.contains(&format!("{name}={}", made.path("keys")));
        let secrets = ["REDIS_PASSWORD_FILE", "TRELLIS_LOG_KEY_FILE"].map(kept);
        found.check("nothing stays", &format!("{who}: {has}"), secrets == [who == "coordinator"; 2]);
    }
}

/// A user is named with its role or, if that is unambiguous, without.
fn rotated(made: &Made, found: &mut Found) {
    let auth = |arguments: &[&str]| trellis(&[&["auth"], arguments].concat(), &[]);
    let dir = made.path("");
    let added = auth(&["add-admin", dir, "alice"]);
    found.check("added", &added, added.contains("keys/admin-alice.nk"));
    let before = made.read("keys/admin-alice.pub");
    let short = auth(&["rotate", dir, "alice"]);
    let good = short.contains("keys/admin-alice.nk") && made.read("keys/admin-alice.pub") != before;
    found.check("a short name", &short, good);
    auth(&["add-observer", dir, "alice"]);
    let two = auth(&["rotate", dir, "alice"]);
    found.check("two users", &two, two.contains("more than one") && two.contains("observer-alice"));
}

/// Every connection is encrypted, with a role for every process; a client without the certificates'
/// CA does not talk to the servers.
#[tokio::test(flavor = "multi_thread")]
async fn s1_a_whole_run_works_over_tls() {
    let made = Made::init();
    let certificates = Certificates::make(&made.0);
    let path = |name: &str| certificates.path(name).to_string_lossy().into_owned();
    let tls = format!(
        "tls {{ cert_file: \"{}\", key_file: \"{}\", ca_file: \"{}\", verify: true }}\n",
        path("server.pem"),
        path("server.key"),
        path("ca.pem")
    );
    let nats = NatsServer::start_with("", &format!("{tls}{}", made.read("nats-auth.conf")));
    let port = free_port().to_string();
    let files = [path("server.pem"), path("server.key"), path("ca.pem")];
    let users = made.path("redis-users.acl");
    let _redis = RedisServer::start_with(&[
        "--tls-port",
        &port,
        "--tls-cert-file",
        &files[0],
        "--tls-key-file",
        &files[1],
        "--tls-ca-cert-file",
        &files[2],
        "--aclfile",
        users,
    ]);
    let environment = |who: &str| {
        let mut environment = made.environment(who);
        let set = |name: &str, value: String| (name.to_owned(), value);
        environment.extend([
            set("NATS_URL", nats.url()),
            set("NATS_TLS", "required".into()),
            set("REDIS_URL", format!("rediss://127.0.0.1:{port}")),
        ]);
        for server in ["NATS", "REDIS"] {
            let files = [("CA", "ca.pem"), ("CERT", "client.pem"), ("KEY", "client.key")];
            environment.extend(files.map(|(what, name)| set(&format!("{server}_{what}"), path(name))));
        }
        environment
    };
    let as_role = |who: &str, arguments: &[&str]| trellis(arguments, &environment(who));
    let sizes = ["--max-log-bytes", "64MiB", "--max-queue-bytes", "32MiB"];
    let provisioned = as_role("provisioner", &[&["provision"], &sizes[..]].concat());
    assert!(provisioned.ends_with("exit Some(0)"), "{provisioned}");
    let coordinator = [&["coordinator", "--id", "c1"], &sizes[..]].concat();
    let _coordinator = Running::start("c1", &made.0, &coordinator, &environment("coordinator"));
    let _worker = Running::start("w1", &made.0, &["worker", "--id", "w1"], &environment("worker-default"));
    eventually("the worker is listed", async || as_role("observer", &["workers", "list"]).contains("w1"))
        .await;
    let echoed = as_role("client", &["run", "--goal", "hello"]);
    assert!(echoed.contains("hello") && echoed.ends_with("exit Some(0)"), "{echoed}");
    let checked = as_role("observer", &["doctor"]);
    assert!(!checked.contains("nats-tls"), "{checked}");
    let mut stranger = environment("client");
    stranger.retain(|(name, _)| name != "NATS_CA");
    let refused = trellis(&["runs", "list"], &stranger);
    assert!(refused.ends_with("exit Some(5)"), "{refused}");
}
