//! The page: who is signed in, that nothing agents say is markup, and that it goes on as a run does.

use gateway::token;
use reqwest::{Method, RequestBuilder, Response};
use serde_json::json;
use shared::role::Kind;
use trellis_tests::{
    cluster::{Cluster, eventually},
    directory::Directory,
};

use super::{Front, config, told};

/// What an agent may say to get out of the text that it is.
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
    assert_eq!(status(submit()).await, 401, "it does not say from where it comes");
    assert_eq!(status(submit().header("origin", "http://127.0.0.1:1")).await, 403);
    assert_eq!(status(submit().header("origin", &own).header("sec-fetch-site", "same-site")).await, 401);
    assert_eq!(status(submit().header("origin", &own).header("sec-fetch-site", "same-origin")).await, 201);
    let of_neighbour = signed_in(front.get("/v1/runs")).header("sec-fetch-site", "same-site");
    assert_eq!(status(of_neighbour).await, 401, "a page of another port of this machine");
    let forged = session.replace("anna", "local");
    assert_eq!(status(page(front.get("/")).header("cookie", forged)).await, 401);

    let made = front.ask(Method::POST, "/v1/sign-in-codes").bearer_auth("the-token");
    let code = told(made.send().await.unwrap(), 201).await["code"].as_str().unwrap().to_owned();
    let answer = with(sign_in("code", &code), &own).send().await.unwrap();
    assert_eq!(answer.status(), 303);
    let by_code = cookie(&answer);
    assert_eq!(status(page(front.get("/")).header("cookie", by_code)).await, 200);
    assert_eq!(status(with(sign_in("code", &code), &own)).await, 401, "it counts once");

    std::fs::write(&file, token::line("anna", &[Kind::Client], "a new one").unwrap()).unwrap();
    eventually("the session ends with its token", async || {
        status(signed_in(page(front.get("/")))).await == 401
    })
    .await;
    front.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x10_what_agents_say_stays_text_on_the_page() {
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
        ] {
            let answer = page(front.get(&path)).send().await.unwrap();
            assert_eq!(answer.status(), 200, "{path}");
            let shown = answer.text().await.unwrap();
            assert!(!shown.contains(hostile), "{path} has {hostile} as it is");
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
async fn x10_the_page_of_a_run_goes_on_as_the_run_does() {
    let front = Front::start().await;
    let trace = front.run(json!({"goal": "hello", "child_id": "w"})).await;
    let shown = page(front.get(&format!("/runs/{trace}"))).send().await.unwrap().text().await.unwrap();
    assert!(
        shown.contains("id=\"r-w\"") && shown.contains("completed") && !shown.contains("data-live=\"runs"),
        "{shown}"
    );
    // From a page that was made before all of it.
    for path in
        [format!("/runs/{trace}/live?version=1"), format!("/runs/{trace}/contexts/w/live?version=1&step=0")]
    {
        let told = front.get(&path).send().await.unwrap().text().await.unwrap();
        assert!(told.contains("event: head") && told.contains("completed"), "{path}: {told}");
        assert!(told.contains("event: end"), "{path}: {told}");
    }
    assert_eq!(status(front.get("/assets/page.js?v=1")).await, 200);
    assert_eq!(status(front.get("/assets/other")).await, 404);
    front.stop().await;
}
