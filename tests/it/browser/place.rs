//! Where the page is: a `trellis dev`, or a gateway before a cluster of processes. And what a script may ask to be done about it.

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

/// Who may sign in: somebody who may do everything, a client, and somebody who may only look. The token of each is its name and `-token`.
const PEOPLE: [(&str, &[Kind]); 3] = [
    ("anna", &[Kind::Client, Kind::Observer, Kind::Admin]),
    ("bert", &[Kind::Client, Kind::Observer]),
    ("olga", &[Kind::Observer]),
];

/// Where the traces of runs are said to be seen.
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

    /// Does what a script asks for. What it is told.
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
                self.cluster.as_mut().expect("a worker of its own").kill(worker);
                String::new()
            }
            // What it is told is the message, which nobody can read.
            ["nonsense", word] => {
                let message = json!({"nonsense": word});
                self.cluster.as_ref().expect("a bus").client.publish(Subject::Cancel, &message).await;
                message.to_string()
            }
            other => panic!("a script asks for {other:?}"),
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
