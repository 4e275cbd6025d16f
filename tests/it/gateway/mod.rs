//! The HTTP gateway of a deployment: the answer of each route, its permitted roles, and the limits
//! on hostile clients.

mod bounds;
mod deployment;
mod document;
mod hostile;
mod page;
mod runs;
mod streams;
mod tokens;

use std::{future::Future, net::SocketAddr};

use gateway::{Config, Server};
use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use trellis_tests::cluster::{Cluster, SOON, eventually};

/// A gateway on a free port, and a client of it.
pub(super) struct Front {
    pub(super) cluster: Cluster,
    pub(super) address: SocketAddr,
    http: reqwest::Client,
    stop: CancellationToken,
    served: JoinHandle<()>,
}

pub(super) fn config() -> Config {
    let mut config = Config::new("127.0.0.1:0".parse().unwrap());
    config.is_open = true;
    // Tests send requests faster than people.
    (config.limits.per_second, config.limits.burst) = (100_000, 100_000);
    config
}

impl Front {
    /// A gateway over a deployment in memory.
    pub(super) async fn start() -> Self {
        Self::with(config(), Cluster::embedded()).await
    }

    pub(super) async fn with(config: Config, cluster: Cluster) -> Self {
        let server = Server::bind(config, cluster.client.bus.clone()).await.unwrap();
        let (address, stop) = (server.address(), CancellationToken::new());
        let served = tokio::spawn(run(server, stop.clone().cancelled_owned()));
        let front = Front { cluster, address, http: client(), stop, served };
        // A completed run shows that the deployment is up.
        front.cluster.client.run(json!({"goal": "warm"})).await;
        front
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(super) fn ask(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, self.url(path))
    }

    pub(super) fn get(&self, path: &str) -> RequestBuilder {
        self.ask(Method::GET, path)
    }

    pub(super) fn post(&self, path: &str, body: &Value) -> RequestBuilder {
        self.ask(Method::POST, path).json(body)
    }

    /// The value at a path, which must exist.
    pub(super) async fn value(&self, path: &str) -> Value {
        told(self.get(path).send().await.unwrap(), 200).await
    }

    /// Submits a run, waits for its end, and returns its id.
    pub(super) async fn run(&self, message: Value) -> String {
        let accepted = told(self.post("/v1/runs", &message).send().await.unwrap(), 201).await;
        let trace = accepted["trace_id"].as_str().unwrap().to_owned();
        eventually("the run ends", async || {
            !self.value(&format!("/v1/runs/{trace}")).await["outcome"].is_null()
        })
        .await;
        trace
    }

    /// Stops the gateway, which ends in bounded time, and then the deployment.
    pub(super) async fn stop(self) {
        self.stop.cancel();
        tokio::time::timeout(SOON, self.served).await.expect("the gateway ends").unwrap();
        self.cluster.stop().await;
    }
}

async fn run(server: Server, stop: impl Future<Output = ()> + Send + 'static) {
    server.serve(stop).await.unwrap();
}

pub(super) fn client() -> reqwest::Client {
    // The first client of a process installs the provider; later calls fail harmlessly.
    rustls::crypto::ring::default_provider().install_default().ok();
    reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap()
}

/// The body of an answer, which must have this status.
pub(super) async fn told(response: Response, status: u16) -> Value {
    let found = response.status();
    let kind = response.headers().get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let is_problem = kind == "application/problem+json";
    let text = response.text().await.unwrap();
    assert_eq!(found, status, "{text}");
    assert_eq!(is_problem, status >= 400, "{text}");
    let value: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{status}: not JSON: {text}"));
    if is_problem {
        assert_eq!(value["status"], status, "{text}");
        for member in ["type", "title", "detail", "code", "message"] {
            assert!(value[member].is_string(), "{member}: {text}");
        }
    }
    value
}

/// A problem with this status and code.
pub(super) async fn problem(request: RequestBuilder, status: u16, code: &str) -> Value {
    let value = told(request.send().await.unwrap(), status).await;
    assert_eq!(value["code"], code, "{value}");
    value
}
