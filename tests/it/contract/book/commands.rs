//! Every command of the book and of README.md is run, or the page says why not: see the head of
//! this folder.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use regex::{Captures, Regex};
use tokio::process::Command;
use trellis_tests::{
    processes::{binary, repository},
    servers::{NatsServer, RedisServer, free_port, installed},
};

use super::{
    file,
    page::{Page, Part, shows},
};

/// Long enough for any page on a busy machine: it only ends a hanging page.
const LONGEST: Duration = Duration::from_secs(240);

/// The functions of every page's shell: `eventually COMMAND` retries the command until it succeeds,
/// for about a minute.
const PRELUDE: &str = "set -o pipefail\neventually() { local n; for n in $(seq 300); do \"$@\" && return; sleep 0.2; done; return 1; }\n";
/// The lines of output shown for a failed command.
const SHOWN: usize = 60;

/// The environment of a page. All of it ends with the page.
struct Place {
    dir: PathBuf,
    ports: BTreeMap<u16, u16>,
    nats: Option<NatsServer>,
    redis: Option<RedisServer>,
}

impl Place {
    fn new(name: &str) -> Place {
        let dir = std::env::temp_dir().join(format!(
            "trellis-page-{}-{}",
            std::process::id(),
            name.replace('/', "-")
        ));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(dir.join(".steps/bin")).unwrap();
        for folder in ["examples", "deploy"] {
            copy(&repository().join(folder), &dir.join(folder));
        }
        let bin = dir.join(".steps/bin");
        symlink(binary(), bin.join("trellis")).unwrap();
        let cargo = "#!/bin/sh\n[ \"$1 $2\" = 'run --' ] || { echo \"only cargo run -- is run\" >&2; exit 101; }\nshift 2\nexec trellis \"$@\"\n";
        fs::write(bin.join("cargo"), cargo).unwrap();
        fs::set_permissions(bin.join("cargo"), fs::Permissions::from_mode(0o755)).unwrap();
        Place { dir, ports: BTreeMap::new(), nats: None, redis: None }
    }

    fn start(&mut self, server: &str) {
        match server {
            "nats" => {
                let nats = NatsServer::start();
                self.ports.insert(4222, nats.port());
                self.nats = Some(nats);
            }
            "redis" => {
                let redis = RedisServer::start();
                self.ports.insert(6379, redis.port());
                self.redis = Some(redis);
            }
            other => panic!("no page has the server {other}"),
        }
    }

    /// Replaces the addresses in a text by free ones of this machine.
    fn placed(&mut self, text: &str) -> String {
        let address = Regex::new(r"\b(127\.0\.0\.1|localhost):(\d{4,5})\b").unwrap();
        let replaced = address.replace_all(text, |found: &Captures<'_>| {
            let Ok(port) = found[2].parse() else { return found[0].to_owned() };
            let free = self.ports.entry(port).or_insert_with(free_port);
            format!("{}:{free}", &found[1])
        });
        replaced.into_owned()
    }

    fn shell(&mut self, script: &Path) -> Command {
        let listen = self.placed("127.0.0.1:7420");
        let path = std::env::var_os("PATH").unwrap_or_default();
        let tool = |name: &str, variable: &str| {
            installed(variable, &Path::new("bin").join(name)).parent().unwrap().display().to_string()
        };
        let tools =
            [tool("nats-server", "TRELLIS_NATS_SERVER"), tool("redis-server", "TRELLIS_REDIS_SERVER")]
                .join(":");
        let mut command = Command::new("bash");
        command.arg("--norc").arg(script).current_dir(&self.dir).env_clear();
        command.env("PATH", format!("{}:{}:{tools}", self.dir.join(".steps/bin").display(), path.display()));
        command.env("HOME", &self.dir).env("TMPDIR", &self.dir).env("TRELLIS_LISTEN", listen);
        command.env("LANG", "C.UTF-8").env("COLUMNS", "120").env("PYTHONDONTWRITEBYTECODE", "1");
        let folder = |variable: &str, name: &str| installed(variable, Path::new(name));
        command.env("TRELLIS_LLAMA_PYTHONPATH", folder("TRELLIS_LLAMA_PYTHONPATH", "llama"));
        command.env("TRELLIS_PYTHONPATH", folder("TRELLIS_PYTHONPATH", "python"));
        command.env("TRELLIS_NODE_MODULES", folder("TRELLIS_NODE_MODULES", "node/node_modules"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        command
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Leftover files must not cause a panic in a drop.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(|entry| entry.unwrap().path()) {
        let target = to.join(entry.file_name().unwrap());
        if entry.is_dir() {
            copy(&entry, &target);
        } else {
            fs::copy(&entry, &target).unwrap();
        }
    }
}

/// Runs a page. Returns its mistakes.
async fn run(name: &str, text: &str) -> Vec<String> {
    let page = Page::read(text);
    if page.parts.iter().all(|part| matches!(part, Part::Servers(_) | Part::File { .. })) {
        return Vec::new();
    }
    let mut place = Place::new(name);
    for server in page
        .parts
        .iter()
        .flat_map(|part| if let Part::Servers(names) = part { names.as_slice() } else { &[] })
    {
        place.start(server);
    }
    let steps = place.dir.join(".steps");
    let mut script = String::from(PRELUDE);
    for (number, part) in page.parts.iter().enumerate() {
        let step = steps.join(number.to_string()).display().to_string();
        match part {
            Part::Servers(_) => {}
            Part::File { name, text, .. } => {
                fs::write(&step, place.placed(text)).unwrap();
                script += &format!(
                    "mkdir -p \"$(dirname '{name}')\" && cp '{step}' '{name}' || exit 1\necho 0 > '{step}.code'\n"
                );
            }
            Part::Script { text, .. } => {
                fs::write(&step, place.placed(text) + "\n").unwrap();
                script +=
                    &format!("set -e\n. '{step}' > '{step}.out' 2>&1\nset +e\necho 0 > '{step}.code'\n");
            }
            Part::Command { text, exit, .. } => {
                fs::write(&step, place.placed(text) + "\n").unwrap();
                script += &format!(
                    ". '{step}' > '{step}.out' 2>&1\ncode=$?\necho $code > '{step}.code'\n[ $code = {exit} ] || exit 1\n"
                );
            }
        }
    }
    let path = steps.join("script");
    fs::write(&path, script).unwrap();
    let mut shell = place.shell(&path).spawn().expect("bash runs");
    let group = Pid::from_raw(i32::try_from(shell.id().expect("the shell still runs")).unwrap());
    let in_time = tokio::time::timeout(LONGEST, shell.wait()).await.is_ok();
    // Kills processes that the page left running, or that hang.
    let _ = killpg(group, Signal::SIGKILL);
    let _ = shell.wait().await;
    for (number, part) in page.parts.iter().enumerate() {
        let read = |ending: &str| fs::read_to_string(steps.join(format!("{number}.{ending}"))).ok();
        let printed = read("out").unwrap_or_default();
        let code: Option<i32> = read("code").and_then(|code| code.trim().parse().ok());
        let (line, text, exit, prints) = match part {
            Part::Servers(_) => continue,
            Part::File { line, name, .. } => (line, name, 0, Vec::new()),
            Part::Script { line, text } => (line, text, 0, Vec::new()),
            Part::Command { line, text, exit, prints } => {
                (line, text, *exit, prints.iter().map(|line| place.placed(line)).collect())
            }
        };
        let lines: Vec<&str> = printed.lines().collect();
        let end = lines[lines.len().saturating_sub(SHOWN)..].join("\n");
        let told = |what: &str| vec![format!("{name}:{line}: {what}\n{text}\n---- it printed\n{end}")];
        match code {
            Some(code) if code != exit => return told(&format!("the exit code is {code}, not {exit}")),
            None if in_time => return told("a command of it failed"),
            None => return told("it did not end"),
            Some(_) if !prints.is_empty() && !shows(&prints, &printed) => {
                return told(&format!("it does not print\n{}\n---- as the page says, of", prints.join("\n")));
            }
            Some(_) => {}
        }
    }
    Vec::new()
}

/// One test for each page with commands. To run one:
/// `cargo test -p trellis-tests --test it -- book::commands::http`.
macro_rules! pages {
    ($($name:ident = $path:literal,)*) => {
        const PAGES: &[&str] = &[$($path),*];

        $(#[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            let wrong = run($path, &file($path)).await;
            assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
        })*
    };
}

pages! {
    authenticity = "docs/authenticity.md",
    backup = "docs/backup.md",
    concepts_readme = "docs/concepts/README.md",
    concepts_agent = "docs/concepts/agent.md",
    concepts_attempt = "docs/concepts/attempt.md",
    concepts_context = "docs/concepts/context.md",
    concepts_grant = "docs/concepts/grant.md",
    concepts_graph = "docs/concepts/graph.md",
    concepts_hold = "docs/concepts/hold.md",
    concepts_journal = "docs/concepts/journal.md",
    concepts_lease = "docs/concepts/lease.md",
    concepts_pool = "docs/concepts/pool.md",
    concepts_run = "docs/concepts/run.md",
    costs = "docs/costs.md",
    examples = "docs/examples.md",
    graphs = "docs/graphs.md",
    howto_ci = "docs/howto/ci.md",
    howto_machines = "docs/howto/machines.md",
    howto_mcp = "docs/howto/mcp.md",
    howto_observe = "docs/howto/observe.md",
    howto_patterns = "docs/howto/patterns.md",
    howto_program = "docs/howto/program.md",
    howto_provider = "docs/howto/provider.md",
    howto_python_worker = "docs/howto/python-worker.md",
    howto_schedules = "docs/howto/schedules.md",
    howto_tls_and_roles = "docs/howto/tls-and-roles.md",
    http = "docs/http.md",
    install = "docs/install.md",
    operations_cluster = "docs/operations/cluster.md",
    operations_production = "docs/operations/production.md",
    operations_troubleshooting = "docs/operations/troubleshooting.md",
    protocol = "docs/protocol.md",
    reference_files = "docs/reference/files.md",
    schedules = "docs/schedules.md",
    security = "docs/security.md",
    tutorial = "docs/tutorial.md",
    upgrade = "docs/upgrade.md",
    webhooks = "docs/webhooks.md",
    readme = "README.md",
}

/// The changelog and pages about the code have no commands for readers.
#[test]
fn every_page_with_commands_has_a_test() {
    let pages = super::beneath("docs", "md").into_iter().chain(["README.md".to_owned()]);
    let with_commands: Vec<String> = pages.filter(|path| !Page::read(&file(path)).parts.is_empty()).collect();
    assert_eq!(PAGES, with_commands, "the list in this file");
}

#[test]
fn every_block_says_what_it_is_and_why_it_is_not_run() {
    let wrong: Vec<String> = super::pages()
        .into_iter()
        .flat_map(|path| {
            Page::read(&file(&path)).wrong.into_iter().map(move |wrong| format!("{path}:{wrong}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// proves: the test of the commands fails for each kind of mistake on a page.
#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_command_is_found() {
    let right = "```yaml file=a/b.yaml\nx: 1\n```\n```console\n$ cat a/b.yaml\nx: 1\n$ trellis --version\ntrellis …\n```\n```sh\nx=1; sleep 1000 &\n```\n\
                 ```console exit=2\n$ test $x = 1 && trellis no-such-command\n…\n```\n";
    assert_eq!(run("right", right).await, Vec::<String>::new());
    for (name, page, said) in [
        ("code", "```console\n$ trellis no-such-command\n```\n", "the exit code is 2, not 0"),
        ("expected-code", "```console exit=3\n$ trellis --version\n```\n", "the exit code is 0, not 3"),
        ("printed", "```console\n$ trellis --version\nbellis …\n```\n", "it does not print\nbellis …"),
        ("script", "```sh\nfalse\ntrue\n```\n", "a command of it failed"),
        ("syntax", "```sh\nif then\n```\n", "a command of it failed"),
        ("cargo", "```sh\ncargo build\n```\n", "a command of it failed"),
    ] {
        let wrong = run(name, page).await;
        assert!(wrong.len() == 1 && wrong[0].contains(said), "{name}: {wrong:?}");
    }
}
