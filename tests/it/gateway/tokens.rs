//! Tokens and roles: the roles of each route, from one table; and a file of tokens that changes
//! while the server runs.

use std::path::PathBuf;

use bus::{Bus, Memory, role::Kind};
use domain::{
    subject::{Filter, Subject},
    wire::{AdminRecord, Asker},
};
use gateway::{Config, Server, token};
use reqwest::Method;
use serde_json::json;
use trellis_tests::{
    cluster::{Cluster, eventually},
    directory::Directory,
};

use super::{Front, config, problem, told};

const C: u8 = 1;
const O: u8 = 2;
const A: u8 = 4;
const ALL: u8 = C | O | A;

/// Every route, and the roles that may use it.
pub(super) const ROUTES: [(&str, &str, u8); 44] = [
    ("POST", "/v1/runs", C),
    ("GET", "/v1/runs", ALL),
    ("GET", "/v1/runs/{trace}", ALL),
    ("GET", "/v1/runs/{trace}/result", ALL),
    ("GET", "/v1/runs/{trace}/events", ALL),
    ("GET", "/v1/runs/{trace}/words", ALL),
    ("GET", "/v1/runs/{trace}/receipt", ALL),
    ("GET", "/v1/runs/{trace}/contexts/{child}/result", ALL),
    ("GET", "/v1/runs/{trace}/contexts/{child}/journal", ALL),
    ("GET", "/v1/runs/{trace}/contexts/{child}/outputs", ALL),
    ("GET", "/v1/runs/{trace}/contexts/{child}/outputs/{path}", ALL),
    ("POST", "/v1/runs/{trace}/cancel", C | A),
    ("POST", "/v1/runs/{trace}/raise", A),
    ("POST", "/v1/runs/{trace}/charge", A),
    ("POST", "/v1/runs/{trace}/restore", A),
    ("POST", "/v1/runs/{trace}/delete", A),
    ("POST", "/v1/runs/{trace}/contexts/{child}/tell", C),
    ("POST", "/v1/runs/{trace}/contexts/{child}/answers/{number}", C),
    ("GET", "/v1/questions", ALL),
    ("GET", "/v1/agents", ALL),
    ("GET", "/v1/agents/{agent}", ALL),
    ("PUT", "/v1/agents/{agent}", A),
    ("DELETE", "/v1/agents/{agent}", A),
    ("GET", "/v1/schedules", ALL),
    ("GET", "/v1/schedules/{schedule}", ALL),
    ("PUT", "/v1/schedules/{schedule}", A),
    ("DELETE", "/v1/schedules/{schedule}", A),
    ("POST", "/v1/schedules/{schedule}/pause", A),
    ("POST", "/v1/schedules/{schedule}/resume", A),
    ("POST", "/v1/schedules/{schedule}/run", A),
    ("GET", "/v1/graphs", ALL),
    ("GET", "/v1/graphs/{graph}", ALL),
    ("PUT", "/v1/graphs/{graph}", A),
    ("DELETE", "/v1/graphs/{graph}", A),
    ("GET", "/v1/workers", ALL),
    ("POST", "/v1/workers/{worker}/drain", A),
    ("GET", "/v1/coordinators", ALL),
    ("GET", "/v1/dead", A),
    ("GET", "/v1/dead/{kind}/{sequence}", A),
    ("POST", "/v1/dead/{kind}/{sequence}/retry", A),
    ("DELETE", "/v1/dead/{kind}/{sequence}", A),
    ("POST", "/v1/sign-in-codes", ALL),
    ("GET", "/openapi.json", ALL),
    ("GET", "/nothing", ALL),
];

pub(super) const ROLES: [(Kind, u8); 3] = [(Kind::Client, C), (Kind::Observer, O), (Kind::Admin, A)];

fn filled(path: &str) -> String {
    let trace = "0af7651916cd43dd8448eb211c80319d";
    let path = path.replace("{trace}", trace).replace("{number}", "1").replace("{sequence}", "1");
    let part = |part: &str| if part.starts_with('{') { "none".to_owned() } else { part.to_owned() };
    path.split('/').map(part).collect::<Vec<_>>().join("/")
}

/// A file with a token for each role; each token is the name of its role.
struct Tokens {
    directory: Directory,
}

impl Tokens {
    fn new() -> Self {
        let tokens = Tokens { directory: Directory::fresh() };
        std::fs::create_dir(tokens.directory.path()).unwrap();
        let line = |(kind, _): (Kind, u8)| token::line(kind.name(), &[kind], kind.name()).unwrap();
        tokens.write(&ROLES.map(line).join("\n"));
        tokens
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("tokens")
    }

    fn write(&self, text: &str) {
        std::fs::write(self.path(), text).unwrap();
    }

    fn config(&self) -> Config {
        Config { tokens: Some(self.path()), ..config() }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s1_each_role_may_do_what_its_subjects_allow_and_nothing_else() {
    let tokens = Tokens::new();
    let front = Front::with(tokens.config(), Cluster::embedded()).await;
    for (method, path, allowed) in ROUTES {
        let method: Method = method.parse().unwrap();
        let ask = || {
            let asked = front.ask(method.clone(), &filled(path));
            if method == Method::GET { asked } else { asked.json(&json!({})) }
        };
        let refused = ask().send().await.unwrap();
        assert_eq!(refused.headers()["www-authenticate"], "Bearer realm=\"trellis\"");
        assert_eq!(told(refused, 401).await["code"], "unauthenticated");
        for (kind, bit) in ROLES {
            let answer = ask().bearer_auth(kind.name()).send().await.unwrap();
            let (status, may) = (answer.status().as_u16(), allowed & bit != 0);
            assert_eq!(status != 403, may, "{method} {path} as {kind}: {status}");
            assert!(status < 500 && status != 401, "{method} {path} as {kind}: {status}");
            if !may {
                let said = told(answer, 403).await["message"].as_str().unwrap().to_owned();
                for (other, bit) in ROLES {
                    let named = said.contains(&format!(" {other}"));
                    assert_eq!(named, allowed & bit != 0, "{method} {path}: {said}");
                }
            }
        }
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!(front.get(path).send().await.unwrap().status(), 200, "{path}");
    }
    for wrong in ["Bearer x", "Bearer", "Basic Y2xpZW50OmNsaWVudA==", "client", "Bearer  ", "Bearer client x"]
    {
        let refused = front.get("/v1/runs").header("authorization", wrong).send().await.unwrap();
        told(refused, 401).await;
    }
    front.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s1_the_page_offers_each_role_what_it_may_and_nothing_else() {
    let tokens = Tokens::new();
    let front = Front::with(tokens.config(), Cluster::embedded()).await;
    let asks = json!({"goal": "<img src=x>", "agent_id": "ask", "child_id": "w"});
    told(front.post("/v1/runs", &asks).bearer_auth("client").send().await.unwrap(), 201).await;
    let look = async |path: &str, kind: Kind| {
        let asked = front.get(path).header("accept", "text/html").bearer_auth(kind.name());
        let answer = asked.send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    eventually("the agent asks a question", async || {
        look("/questions", Kind::Client).await.1.contains("&lt;img src=x&gt;")
    })
    .await;
    for (kind, bit) in ROLES {
        for (path, allowed) in [
            ("/questions", ALL),
            ("/workers", ALL),
            ("/agents", ALL),
            ("/schedules", ALL),
            ("/operations", ALL),
            ("/dead", A),
        ] {
            let (status, page) = look(path, kind).await;
            assert_eq!(status, if allowed & bit == 0 { 403 } else { 200 }, "{path} as {kind}: {page}");
            let link = format!("href=\"{}\"", path.trim_start_matches('/'));
            let (_, runs) = look("/", kind).await;
            assert_eq!(runs.contains(&link), allowed & bit != 0, "{path} as {kind}");
            assert!(!page.contains("<img"), "{path}: {page}");
        }
        for (path, offered, allowed) in [
            ("/questions", "data-json", C),
            ("/workers", "data-post", A),
            ("/operations", "AGENT_EVENT", A),
            ("/operations", "coordinators", ALL),
        ] {
            let (_, page) = look(path, kind).await;
            assert_eq!(page.contains(offered), allowed & bit != 0, "{path} as {kind}: {page}");
        }
    }
    front.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s7_actions_of_administrators_are_recorded_with_the_name_of_their_token() {
    let tokens = Tokens::new();
    tokens.write(&token::line("ops-anna", &[Kind::Admin], "t").unwrap());
    let front = Front::with(tokens.config(), Cluster::embedded()).await;
    let agent = json!({"agent_id": "a", "kind": "llm", "model": "scripted", "script": [{"say": "x"}]});
    told(front.ask(Method::PUT, "/v1/agents/a").bearer_auth("t").json(&agent).send().await.unwrap(), 200)
        .await;
    eventually("the action is recorded", async || {
        let stored = front.cluster.client.bus.read(&Filter::Audits).await.unwrap();
        stored.iter().any(|stored| {
            let record: AdminRecord = serde_json::from_slice(&stored.payload).unwrap();
            record.asked == "apply_agents" && record.by == Some(Asker::Claimed("ops-anna".into()))
        })
    })
    .await;
    front.stop().await;
}

/// proves: the right to read dead letters does not include the right to send their messages again.
#[tokio::test(flavor = "multi_thread")]
async fn s7_a_dead_letter_is_sent_again_only_with_the_right_to_send_its_message() {
    let tokens = Tokens::new();
    let front = Front::with(tokens.config(), Cluster::embedded()).await;
    let nonsense = json!({"nonsense": 1});
    for subject in [Subject::Spawn, Subject::Cancel] {
        front.cluster.client.publish(subject, &nonsense).await;
    }
    let letters = async || {
        let answer = front.get("/v1/dead").bearer_auth("admin").send().await.unwrap();
        told(answer, 200).await["letters"].as_array().unwrap().clone()
    };
    eventually("the messages are dead letters", async || letters().await.len() == 2).await;
    for letter in letters().await {
        let path = format!("/v1/dead/{}/{}/retry", letter["kind"].as_str().unwrap(), letter["sequence"]);
        let answer = front.post(&path, &nonsense).bearer_auth("admin").send().await.unwrap();
        if letter["kind"] == "cancel" {
            told(answer, 202).await;
            continue;
        }
        let said = told(answer, 403).await;
        assert_eq!(said["code"], "denied");
        assert!(said["message"].as_str().unwrap().contains("it needs the role client"), "{said}");
    }
    front.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s1_the_file_is_read_again_a_broken_one_changes_nothing_and_a_token_that_is_gone_hears_no_more() {
    let tokens = Tokens::new();
    let line = |name: &str, token: &str| token::line(name, &[Kind::Client, Kind::Admin], token).unwrap();
    tokens.write(&line("one", "t1"));
    let front = Front::with(tokens.config(), Cluster::embedded()).await;
    let status = async |token: &str| {
        front.get("/v1/agents").bearer_auth(token).send().await.unwrap().status().as_u16()
    };
    assert_eq!((status("t1").await, status("t2").await), (200, 401));
    tokens.write(&format!("# both\n{}\n{}\n", line("one", "t1"), line("two", "t2")));
    eventually("the second file is valid", async || status("t2").await == 200).await;
    tokens.write("two client nonsense");
    let again = format!("{}\nthree client", line("one", "t3"));
    tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
    tokens.write(&again);
    tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
    assert_eq!(
        (status("t1").await, status("t2").await, status("t3").await),
        (200, 200, 401),
        "the tokens of the last valid file remain"
    );

    let agent = json!({"goal": "Which?", "agent_id": "ask", "child_id": "w"});
    let sent = front.post("/v1/runs", &agent).bearer_auth("t1").send().await.unwrap();
    let trace = told(sent, 201).await["trace_id"].as_str().unwrap().to_owned();
    let asked = front.get(&format!("/v1/runs/{trace}/events")).header("accept", "text/event-stream");
    let mut response = asked.bearer_auth("t1").send().await.unwrap();
    assert_eq!(response.status(), 200);
    tokens.write(&line("two", "t2"));
    let ended = tokio::time::timeout(trellis_tests::cluster::SOON, async {
        while response.chunk().await.unwrap().is_some() {}
    });
    ended.await.expect("the stream of a removed token ends");
    assert_eq!((status("t1").await, status("t2").await), (401, 200));
    std::fs::remove_file(tokens.path()).unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
    assert_eq!(status("t2").await, 200, "a missing file changes nothing");
    front.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_token_has_all_rights_and_a_request_without_it_has_none() {
    let secret = token::fresh();
    let front = Front::with(Config { token: Some(secret.clone()), ..config() }, Cluster::embedded()).await;
    problem(front.get("/v1/dead"), 401, "unauthenticated").await;
    for path in ["/v1/dead", "/v1/runs", "/v1/agents"] {
        told(front.get(path).bearer_auth(&secret).send().await.unwrap(), 200).await;
    }
    front.stop().await;
}

#[tokio::test]
async fn s1_an_address_that_others_reach_needs_tokens() {
    let bus = || Bus::Memory(Memory::new(Default::default()));
    for address in ["0.0.0.0:0", "[::]:0"] {
        let open = Config { listen: address.parse().unwrap(), token: Some("x".into()), ..config() };
        let error = Server::bind(open, bus()).await.unwrap_err().to_string();
        assert!(error.contains("there are no tokens\n\nhint: "), "{error}");
    }
    let closed = Config { is_open: false, ..config() };
    let error = Server::bind(closed, bus()).await.unwrap_err().to_string();
    assert!(error.contains("could do everything\n\nhint: "), "{error}");
    let tokens = Tokens::new();
    let named = Config { listen: "0.0.0.0:0".parse().unwrap(), ..tokens.config() };
    Server::bind(named, bus()).await.unwrap();
    let missing = Config { tokens: Some("/nowhere/tokens".into()), ..config() };
    let error = Server::bind(missing, bus()).await.unwrap_err().to_string();
    assert!(error.contains("/nowhere/tokens") && error.contains("hint: "), "{error}");
}
