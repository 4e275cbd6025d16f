//! The deployment behind the page: a `trellis dev`, or a gateway and a cluster of processes.
//! Also the actions that a script may request on it.

use std::process::Command;

use bus::role::Kind;
use domain::subject::Subject;
use gateway::token;
use serde_json::json;
use trellis_tests::{
    directory::Directory,
    processes::{Processes, Shape, binary},
    servers::Trellis,
};

/// The people who may sign in: anna may do everything, bert is a client, olga may only look. Each
/// token is the name plus `-token`.
const PEOPLE: [(&str, &[Kind]); 3] = [
    ("anna", &[Kind::Client, Kind::Observer, Kind::Admin]),
    ("bert", &[Kind::Client, Kind::Observer]),
    ("olga", &[Kind::Observer]),
];

/// The configured address of an external trace viewer.
const TRACES: &str = "http://traces.example/{trace_id}";

pub(super) struct Place {
    server: Trellis,
    cluster: Option<Processes>,
    _files: Directory,
}

impl Place {
    pub(super) async fn dev() -> Self {
        let (files, tokens) = tokens();
        let server = Trellis::dev(&["--tokens", &tokens, "--trace-url", TRACES]);
        Place { server, cluster: None, _files: files }
    }

    pub(super) async fn cluster() -> Self {
        let (files, tokens) = tokens();
        let cluster = Processes::start_as(|| Shape { slots: 64, drain: "1h", ..Shape::new(1, 2) }).await;
        let server = Trellis::gateway(&cluster.nats.url(), &["--tokens", &tokens, "--trace-url", TRACES]);
        Place { server, cluster: Some(cluster), _files: files }
    }

    pub(super) fn url(&self) -> String {
        self.server.url()
    }

    pub(super) fn log(&self) -> String {
        self.server.log()
    }

    /// Does the requested action and returns its answer.
    pub(super) async fn act(&mut self, asked: &str) -> String {
        match asked.split_whitespace().collect::<Vec<_>>().as_slice() {
            ["link"] => {
                let url = self.url();
                let mut page = Command::new(binary());
                page.args(["page", "--url", &url]).env_clear().env("TRELLIS_TOKEN", "anna-token");
                let said = page.output().unwrap();
                assert!(said.status.success(), "{said:?}");
                String::from_utf8(said.stdout).unwrap().trim().to_owned()
            }
            ["stop"] => {
                self.server.stop();
                String::new()
            }
            ["start"] => {
                self.server.restart();
                String::new()
            }
            ["kill", worker] => {
                self.cluster.as_mut().expect("the test has its own worker").kill(worker);
                String::new()
            }
            // Returns the message, which no coordinator can decode.
            ["nonsense", word] => {
                let message = json!({"nonsense": word});
                self.cluster.as_ref().expect("a bus").client.publish(Subject::Cancel, &message).await;
                message.to_string()
            }
            other => panic!("unknown request of a script: {other:?}"),
        }
    }
}

fn tokens() -> (Directory, String) {
    let files = Directory::fresh();
    std::fs::create_dir(files.path()).unwrap();
    let file = files.path().join("tokens");
    let line = |(name, kinds): (&str, &[Kind])| token::line(name, kinds, &format!("{name}-token")).unwrap();
    std::fs::write(&file, PEOPLE.map(line).join("\n")).unwrap();
    (files, file.display().to_string())
}
