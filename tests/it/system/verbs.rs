//! Every verb of `trellis`, from one table, against a directory, a server over HTTP, and a cluster
//! on NATS: the output is the same for each.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use regex::Regex;
use serde_json::json;
use trellis_tests::processes::{Processes, binary, fresh_trace, repository};

/// A run of a researcher, which leaves a file.
const FOUND: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa1";
/// A graph that a human has to approve.
const APPROVED: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb2";

/// The compared part of a command's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compared {
    /// Its whole output, apart from times, and its exit code.
    All,
    /// The same without its progress, of which parts may be missed.
    Out,
    /// Only its exit code: other processes or new ids differ.
    Code,
    /// As `Code`, if a process serves the place: a directory without one reports an error.
    Served,
}

use Compared::{All, Code, Out, Served};

/// The commands, in this order. `FOUND`, `APPROVED` and the names of files are replaced.
const VERBS: &[(&str, Compared)] = &[
    ("agents apply examples/agents.yaml", Code),
    ("agents apply examples/agents.yaml", All),
    ("agents list", All),
    ("agents show researcher", All),
    ("agents diff examples/agents.yaml", All),
    ("run SPAWN --agents examples/agents.yaml", Out),
    ("run GRAPH --agents examples/agents.yaml --answer approve", Out),
    ("run GRAPH --agents examples/agents.yaml --answer approve", Out),
    ("runs list", All),
    ("runs list --status completed --agent researcher -o json", Code),
    ("runs list --label no=such", All),
    ("runs show FOUND", All),
    ("runs watch APPROVED", Out),
    ("runs pending", All),
    ("result FOUND", All),
    ("result APPROVED/draft -o json", All),
    ("history FOUND", All),
    ("history FOUND@1", All),
    ("outputs FOUND", All),
    ("outputs FOUND --get notes.md", All),
    ("receipt FOUND", Code),
    ("trace APPROVED", Code),
    ("audit FOUND", Code),
    ("events FOUND", All),
    ("budgets show FOUND", All),
    ("budgets tree APPROVED", All),
    ("budgets raise FOUND --max-cost-usd 9", All),
    ("budgets disputes FOUND", All),
    ("tell FOUND 'Go on.'", All),
    ("answer FOUND yes", All),
    ("runs cancel FOUND", All),
    ("runs restore FOUND@1", All),
    ("runs rerun APPROVED", Code),
    ("submit --goal hello", Code),
    ("graphs apply examples/facts.yaml", All),
    ("graphs list", All),
    ("graphs show facts", All),
    ("graphs delete facts", All),
    ("graphs show facts", All),
    ("schedules apply examples/nightly.yaml", All),
    ("schedules list", All),
    ("schedules show nightly", All),
    ("schedules pause nightly", All),
    ("schedules resume nightly", All),
    ("schedules delete nightly", All),
    ("schedules show nightly", All),
    ("workers list", Served),
    ("workers drain nobody", All),
    ("admin-log", Code),
    ("agents delete critic", All),
    ("agents show critic", All),
    ("doctor", Code),
    ("dead-letters list", Code),
    ("dead-letters show 7", All),
    ("charge FOUND --cost-usd 0.01", Code),
    ("runs delete FOUND", All),
    ("runs delete FOUND/nobody --yes", All),
    ("runs delete FOUND --yes", All),
    ("history FOUND", All),
    ("runs show cccccccccccccccccccccccccccccccc", All),
];

/// The output of a command, and its exit code.
type Said = (String, Option<i32>);

/// The target of the commands, selected by the environment.
struct Place {
    name: &'static str,
    environment: Vec<(&'static str, String)>,
    files: PathBuf,
    server: Option<Child>,
}

impl Place {
    fn new(name: &'static str) -> Self {
        let files = std::env::temp_dir().join(format!("trellis-verbs-{}", fresh_trace()));
        std::fs::create_dir_all(&files).unwrap();
        let spawn = json!({"trace_id": FOUND, "child_id": "scout", "agent_id": "researcher", "goal": "Find food.",
            "labels": {"env": "test"}, "max_cost_usd": 0.5});
        std::fs::write(files.join("spawn.json"), spawn.to_string()).unwrap();
        let graph = std::fs::read_to_string(repository().join("examples/approval.yaml")).unwrap();
        std::fs::write(files.join("graph.yaml"), format!("trace_id: {APPROVED}\n{graph}")).unwrap();
        Place { name, environment: Vec::new(), files, server: None }
    }

    fn directory() -> Self {
        let mut place = Place::new("directory");
        let data = place.files.join("data");
        std::fs::create_dir_all(&data).unwrap();
        place.environment = vec![("TRELLIS_DATA", data.display().to_string())];
        place
    }

    /// A `dev` that listens on a free port.
    fn http() -> Self {
        let mut place = Place::new("http");
        let mut dev = Command::new(binary())
            .args(["dev", "--listen", "127.0.0.1:0", "--agents", "examples/agents.yaml"])
            .current_dir(repository())
            .env_clear()
            .env("TRELLIS_DATA", place.files.join("data"))
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(dev.stderr.take().unwrap()).lines().map_while(Result::ok);
        let address = said.into_iter().find_map(|line| {
            let at = line.find("http://")?;
            Some(line[at..].split_whitespace().next()?.to_owned())
        });
        let address = address.expect("the gateway prints its address").trim_end_matches(',').to_owned();
        let token = place.files.join("data/token").display().to_string();
        place.environment = vec![("TRELLIS_URL", address), ("TRELLIS_TOKEN_FILE", token)];
        place.server = Some(dev);
        place
    }

    fn nats(cluster: &Processes) -> Self {
        let mut place = Place::new("nats");
        place.environment = vec![("NATS_URL", cluster.nats.url())];
        place
    }

    fn says(&self, verb: &str) -> Said {
        let file = |name: &str| self.files.join(name).display().to_string();
        let words = words(verb).into_iter().map(|word| {
            let word = word.replace("FOUND", FOUND).replace("APPROVED", APPROVED);
            word.replace("SPAWN", &file("spawn.json")).replace("GRAPH", &file("graph.yaml"))
        });
        let mut command = Command::new(binary());
        command.args(words).current_dir(repository()).env_clear().stdin(Stdio::null());
        let output = command.envs(self.environment.iter().cloned()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (format!("{}--\n{}", text(&output.stdout), text(&output.stderr)), output.status.code())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(server) = &mut self.server {
            server.kill().ok();
            server.wait().ok();
        }
        std::fs::remove_dir_all(&self.files).ok();
    }
}

/// The words of a line, some of them quoted.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (number, part) in line.split('\'').enumerate() {
        match number % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words
}

/// The output without parts that vary: times, durations, processes, and the paths of files.
fn plain(said: &str, files: &Path) -> String {
    let said = said.replace(&files.display().to_string(), "FILES");
    let rules = [
        (r"\d{4}-\d\d-\d\d[T ][\d:.]+Z?", "TIME"),
        (r"\+?\b\d+(\.\d+)? ?(ms|s|min|h|d|seconds?|minutes?|hours?)\b( ago)?", "SPAN"),
        (r"just now|SPAN( SPAN)+", "SPAN"),
        (r"\b\d+ (running|alive)\b", "N $1"),
        (r"\b[\w-]+-\d+-[0-9a-f]{6}\b|\b[cw][12]\b", "PROCESS"),
        (r"sequence \d+|\(of \d+\)", "N"),
        (r"token_hash .*", "HASH"),
        (r"[ \t]+", " "),
        (r"-{3,}|─{3,}", "--"),
        // A run longer than three seconds ticks: the duration depends on the machine.
        (r"(?m)^ *\d+ +\d+ TIME( SPAN)* \S+ ticked .*\n", ""),
        (r"(?m)^ *\d+ +\d+ TIME", "NUMBERS TIME"),
    ];
    rules
        .iter()
        .fold(said, |said, (found, put)| Regex::new(found).unwrap().replace_all(&said, *put).into_owned())
}

/// proves: every verb works on all targets, with the same output.
#[tokio::test(flavor = "multi_thread")]
async fn every_verb_says_the_same_of_a_directory_a_server_and_a_cluster() {
    let cluster = Processes::start(1, 1).await;
    let places = vec![Place::directory(), Place::http(), Place::nats(&cluster)];
    let each = places.into_iter().map(|place| {
        tokio::task::spawn_blocking(move || {
            let all: Vec<_> = VERBS.iter().map(|(verb, _)| place.says(verb)).collect();
            let all = all.into_iter().map(|(said, code)| (plain(&said, &place.files), code)).collect();
            (place.name, all)
        })
    });
    let mut told: Vec<(&str, Vec<Said>)> = Vec::new();
    for one in each.collect::<Vec<_>>() {
        told.push(one.await.unwrap());
    }
    let mut differences = String::new();
    for (number, (verb, compared)) in VERBS.iter().enumerate() {
        let (first, of_first) = (told[0].0, &told[0].1[number]);
        for (name, all) in &told[1..] {
            let of_other = &all[number];
            let out = |said: &Said| said.0.split("--\n").next().map(str::to_owned);
            let said_the_same = match compared {
                All => of_first.0 == of_other.0,
                Out => out(of_first) == out(of_other),
                Code | Served => true,
            };
            let is_apart = matches!(compared, Served) && first == "directory";
            let is_other = if is_apart { of_other.1 != Some(0) } else { of_first.1 != of_other.1 };
            if is_other || !said_the_same {
                differences += &format!("== {verb}\n{first}: {of_first:?}\n{name}: {of_other:?}\n");
            }
        }
        assert!(!of_first.0.contains("For more information, try '--help'"), "{verb}: {}", of_first.0);
    }
    assert!(differences.is_empty(), "\n{differences}");
}
