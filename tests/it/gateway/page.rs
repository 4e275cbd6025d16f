//! The page: sessions, agents' texts that never become markup, and live updates of a run.

use bus::role::Kind;
use gateway::token;
use reqwest::{Method, RequestBuilder, Response};
use serde_json::json;
use trellis_tests::{
    cluster::{Cluster, eventually},
    directory::Directory,
};

use super::{Front, config, told};

/// Texts by which an agent may try to become markup.
const HOSTILE: [&str; 6] = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "</pre></main><svg onload=alert(1)>",
    "<a href=\"javascript:alert(1)\">x</a>",
    "<!-- --><base href=//evil.example/>",
    "<meta http-equiv=refresh content=0>",
];

fn page(asked: RequestBuilder) -> RequestBuilder {
    asked.header("accept", "text/html")
}

/// The cookie that an answer sets, as a browser sends it.
fn cookie(answer: &Response) -> String {
    let set = answer.headers()["set-cookie"].to_str().unwrap();
    assert!(set.contains("HttpOnly") && set.contains("SameSite=Strict"), "{set}");
    assert!(!set.contains("the-token"), "{set}");
    set.split(';').next().unwrap().to_owned()
}

async fn status(asked: RequestBuilder) -> u16 {
    asked.send().await.unwrap().status().as_u16()
}

#[tokio::test(flavor = "multi_thread")]
async fn x10_a_browser_signs_in_by_a_token_or_a_code_and_no_other_page_acts_for_it() {
    let directory = Directory::fresh();
    std::fs::create_dir(directory.path()).unwrap();
    let file = directory.path().join("tokens");
    std::fs::write(&file, token::line("anna", &[Kind::Client], "the-token").unwrap()).unwrap();
    let front =
        Front::with(gateway::Config { tokens: Some(file.clone()), ..config() }, Cluster::embedded()).await;
    let own = format!("http://{}", front.address);

    let asked = page(front.get("/")).send().await.unwrap();
    assert_eq!(asked.status(), 401);
    let policy = asked.headers()["content-security-policy"].to_str().unwrap().to_owned();
    assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    assert!(asked.text().await.unwrap().contains("<form method=\"post\" action=\"sign-in\""));

    let sign_in = |field: &str, value: &str| {
        let body = format!("{field}={value}");
        let asked = front.ask(Method::POST, "/sign-in").body(body);
        asked.header("content-type", "application/x-www-form-urlencoded")
    };
    let with = |asked: RequestBuilder, origin: &str| asked.header("origin", origin);
    assert_eq!(status(sign_in("token", "the-token")).await, 403, "no browser sends a form without an origin");
    assert_eq!(status(with(sign_in("token", "the-token"), "http://127.0.0.1:1")).await, 403);
    assert_eq!(status(with(sign_in("token", "another"), &own)).await, 401);
    let answer = with(sign_in("token", "the-token"), &own).send().await.unwrap();
    assert_eq!((answer.status().as_u16(), &answer.headers()["location"]), (303, &"./".parse().unwrap()));
    let session = cookie(&answer);

    let signed_in = |asked: RequestBuilder| asked.header("cookie", &session);
    assert_eq!(status(signed_in(page(front.get("/")))).await, 200);
    assert_eq!(status(signed_in(front.get("/v1/runs"))).await, 200);
    let submit = || signed_in(front.post("/v1/runs", &json!({"goal": "hello"})));
    assert_eq!(status(submit()).await, 401, "a request without an origin is refused");
    assert_eq!(status(submit().header("origin", "http://127.0.0.1:1")).await, 403);
    assert_eq!(status(submit().header("origin", &own).header("sec-fetch-site", "same-site")).await, 401);
    assert_eq!(status(submit().header("origin", &own).header("sec-fetch-site", "same-origin")).await, 201);
    let of_neighbour = signed_in(front.get("/v1/runs")).header("sec-fetch-site", "same-site");
    assert_eq!(status(of_neighbour).await, 401, "a form from a page of another port is refused");
    let forged = session.replace("anna", "local");
    assert_eq!(status(page(front.get("/")).header("cookie", forged)).await, 401);

    let made = front.ask(Method::POST, "/v1/sign-in-codes").bearer_auth("the-token");
    let code = told(made.send().await.unwrap(), 201).await["code"].as_str().unwrap().to_owned();
    let answer = with(sign_in("code", &code), &own).send().await.unwrap();
    assert_eq!(answer.status(), 303);
    let by_code = cookie(&answer);
    assert_eq!(status(page(front.get("/")).header("cookie", by_code)).await, 200);
    assert_eq!(status(with(sign_in("code", &code), &own)).await, 401, "a code is valid once");

    std::fs::write(&file, token::line("anna", &[Kind::Client], "a new one").unwrap()).unwrap();
    eventually("the session ends with its token", async || {
        status(signed_in(page(front.get("/")))).await == 401
    })
    .await;
    front.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x10_the_text_of_agents_stays_text_on_the_page() {
    let front = Front::start().await;
    for hostile in HOSTILE {
        let agent = json!({"agent_id": "bad", "kind": "llm", "model": "scripted", "description": hostile,
            "script": [{"say": format!("{hostile} said")}]});
        told(front.ask(Method::PUT, "/v1/agents/bad").json(&agent).send().await.unwrap(), 200).await;
        let run = json!({"goal": format!("{hostile} goal"), "agent_id": "bad", "child_id": "bad"});
        let trace = front.run(run).await;
        for path in [
            "/".to_owned(),
            "/agents".to_owned(),
            format!("/runs/{trace}"),
            format!("/runs/{trace}/contexts/bad"),
            format!("/runs/{trace}/money"),
            format!("/runs/{trace}/timeline"),
            format!("/runs/{trace}/files"),
        ] {
            let answer = page(front.get(&path)).send().await.unwrap();
            assert_eq!(answer.status(), 200, "{path}");
            let shown = answer.text().await.unwrap();
            assert!(!shown.contains(hostile), "{path} has {hostile} without escapes");
            let escaped = hostile
                .replace('&', "&amp;")
                .replace('<', "&lt;")
                .replace('>', "&gt;")
                .replace('"', "&quot;");
            assert!(shown.contains(&escaped), "{path} does not show {hostile}: {shown}");
        }
    }
    front.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x10_the_page_of_a_run_follows_the_run() {
    let front = Front::start().await;
    let trace = front.run(json!({"goal": "hello", "child_id": "w"})).await;
    let shown = page(front.get(&format!("/runs/{trace}"))).send().await.unwrap().text().await.unwrap();
    assert!(
        shown.contains("id=\"r-w\"") && shown.contains("completed") && !shown.contains("data-live=\"runs"),
        "{shown}"
    );
    // From a page that was made before all of these events.
    for path in [format!("/runs/{trace}/live?version=1"), format!("/runs/{trace}/contexts/w/live?step=0")] {
        let told = front.get(&path).send().await.unwrap().text().await.unwrap();
        assert!(told.contains("event: head") && told.contains("completed"), "{path}: {told}");
        assert!(told.contains("event: end"), "{path}: {told}");
    }
    assert_eq!(status(front.get("/assets/page.js?v=1")).await, 200);
    assert_eq!(status(front.get("/assets/other")).await, 404);
    front.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x10_the_money_of_a_run_is_shown_as_it_is_and_as_it_was() {
    let front = Front::start().await;
    let inputs = json!({"depth": 1, "width": 3, "leaf": "spend", "usd": 0.02});
    let run = json!({"goal": "pay", "agent_id": "tree", "child_id": "w", "inputs": inputs});
    let trace = front.run(run).await;
    let look = async |query: &str| {
        let answer = page(front.get(&format!("/runs/{trace}/money{query}"))).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{query}");
        answer.text().await.unwrap()
    };
    let now = look("").await;
    assert!(
        now.contains("$0.06 spent") && now.matches("<td data-name=\"Spent by itself\">$0.02").count() == 3,
        "{now}"
    );
    let first = look("?at=1").await;
    assert!(first.contains("$0.00 spent") && !first.contains("$0.06 spent"), "{first}");
    assert!(look("?at=9007199254740991").await.contains("$0.06 spent"));
    assert!(look("?of=w-1").await.contains("The whole run"));
    assert_eq!(status(front.get(&format!("/runs/{trace}/money?of=nobody"))).await, 404);
    let told = front.get(&format!("/runs/{trace}/money/live")).send().await.unwrap().text().await.unwrap();
    assert!(told.contains("event: part") && told.contains("$0.06") && told.contains("event: end"), "{told}");
    front.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x10_a_list_that_grew_since_the_page_was_made_is_sent_with_its_rows_in_order() {
    let front = Front::start().await;
    let inputs = json!({"depth": 1, "width": 250, "leaf": "echo"});
    let run = json!({"goal": "wide", "agent_id": "tree", "child_id": "w", "inputs": inputs, "limits": {"max_children": 300}});
    let trace = front.run(run).await;
    let shown = page(front.get(&format!("/runs/{trace}"))).send().await.unwrap().text().await.unwrap();
    assert!(shown.contains("id=\"r-w-200\"") && !shown.contains("id=\"r-w-201\""), "the first 200 rows");
    assert!(shown.contains(">50 more<"), "{shown}");
    let rest = page(front.get(&format!("/runs/{trace}/rows/w?from=200"))).send().await.unwrap();
    let rest = rest.text().await.unwrap();
    assert!(
        rest.contains("id=\"r-w-201\"") && rest.contains("id=\"r-w-250\"") && !rest.contains("more<"),
        "{rest}"
    );
    // A page from a time with one row has the list open: it receives all further rows, in order.
    let live = async |open: &str| {
        let path = format!("/runs/{trace}/live?version=1&open={open}");
        front.get(&path).send().await.unwrap().text().await.unwrap()
    };
    let told = live("w:1").await;
    let place = |row: &str| {
        told.find(&format!("\"c-w-{row}\"")).unwrap_or_else(|| panic!("{row} is not in the stream"))
    };
    assert!(place("1") < place("2") && place("2") < place("200"), "{told}");
    assert!(!told.contains("\"c-w-201\"") && told.contains("50 more"), "only loaded rows are updated");
    assert!(live("w:250").await.contains("\"c-w-250\""), "loaded rows are updated too");
    assert!(!live("").await.contains("\"c-w-1\""), "a closed list gets no updates");
    front.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x10_a_playground_checks_what_is_typed_and_only_a_dev_has_one() {
    let front = Front::start().await;
    assert_eq!(status(page(front.get("/playground"))).await, 404);
    assert_eq!(status(front.post("/playground/check", &json!({"text": ""}))).await, 404);
    assert_eq!(status(front.post("/playground/kill", &json!({}))).await, 404);
    front.stop().await;
    let playground = gateway::Playground::default();
    let config = gateway::Config { playground: Some(playground.clone()), ..config() };
    let front = Front::with(config, Cluster::embedded()).await;
    assert_eq!(status(page(front.get("/playground"))).await, 200);
    let check = async |text: &str, fail: Option<&str>| {
        told(front.post("/playground/check", &json!({"text": text, "fail": fail})).send().await.unwrap(), 200)
            .await
    };
    let good = "name: g\nsteps:\n  - {id: one, agent_id: echo, task_description: hi}\n";
    let checked = check(good, None).await;
    assert_eq!(
        (&checked["graph"]["steps"][0]["agent_id"], &checked["steps"]),
        (&json!("echo"), &json!(["one"]))
    );
    assert!(checked["drawn"].as_str().unwrap().contains("<svg"), "{checked}");
    assert_eq!(check(good, Some("one")).await["graph"]["steps"][0]["agent_id"], "fail");
    for (text, line, mistake) in [
        (good.replace("echo", "eccho"), 3, "did you mean `echo`?"),
        (good.replace("agent_id: echo", "agent: echo"), 3, "agent"),
        ("name: g\nsteps: [".to_owned(), 0, "YAML"),
        ("{\n\"name\": \"g\",\n\"steps\": []}".to_owned(), 3, "steps"),
    ] {
        let checked = check(&text, None).await;
        let said = checked["checked"].as_str().unwrap();
        assert!(checked["graph"].is_null() && said.contains(mistake), "{text}: {said}");
        assert!(line == 0 || said.contains(&format!("data-line=\"{line}\"")), "{text}: {said}");
    }
    for hostile in HOSTILE {
        let typed = json!({"name": "g", "steps": [{"id": hostile, "agent_id": hostile, "task_description": hostile}]});
        let checked = check(&typed.to_string(), Some(hostile)).await;
        assert!(!checked["checked"].as_str().unwrap().contains(hostile), "{checked}");
    }
    assert_eq!(status(front.post("/playground/kill", &json!({}))).await, 202);
    playground.kills_worker().await;
    front.stop().await;
}
