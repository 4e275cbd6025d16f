//! Access to the process that has a directory open: commands of the same user reach it, and other
//! users and agents do not.

#![allow(clippy::unwrap_used, reason = "a test that is surprised shall panic")]

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
};

struct Home(PathBuf);

impl Home {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("trellis-home-{}-{number}", std::process::id()));
        std::fs::remove_dir_all(&path).ok();
        std::fs::create_dir_all(&path).unwrap();
        Home(path)
    }

    /// The default directory.
    fn data(&self) -> PathBuf {
        self.0.join(".local/share/trellis")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trellis"));
        command.args(args).env_clear().env("HOME", &self.0).stdin(Stdio::null());
        command
    }

    fn output(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn says(&self, args: &[&str]) -> String {
        let output = self.output(args);
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
    }

    fn kept(&self) -> usize {
        let runs: serde_json::Value =
            serde_json::from_slice(&self.output(&["runs", "list", "-o", "json", "--limit", "500"]).stdout)
                .unwrap();
        runs["runs"].as_array().unwrap().len()
    }

    /// Starts a `dev` on a free port, and returns its address.
    fn dev(&self, more: &[&str]) -> (Child, String) {
        let mut command = self.command(&[&["dev", "--listen", "127.0.0.1:0"], more].concat());
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let line = said.find(|line| line.contains("http://")).unwrap();
        // The process writes more to stderr, so the rest is read and dropped.
        thread::spawn(move || said.for_each(drop));
        let at = line.find("http://").unwrap() + "http://".len();
        (child, line[at..].split([',', ' ']).next().unwrap().to_owned())
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The first line of a server's answer.
fn answered(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.replace('\n', "\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.lines().next().unwrap_or_default().to_owned()
}

/// proves: an agent with a network, or another user of the machine, can't raise a budget or apply a
/// profile at a user's `dev`.
#[test]
fn s1_whoever_has_no_token_gets_nothing_of_a_dev() {
    let home = Home::new();
    let (dev, address) = home.dev(&[]);
    let get = |path: &str, more: &str| {
        answered(&address, &format!("GET {path} HTTP/1.1\nHost: {address}\nConnection: close\n{more}\n"))
    };
    for path in ["/v1/runs", "/v1/agents", "/v1/dead", "/openapi.json"] {
        assert!(get(path, "").contains(" 401 "), "{path}: {}", get(path, ""));
    }
    let body = r#"{"ping":null}"#;
    let call = format!(
        "POST /bus HTTP/1.1\nHost: {address}\nConnection: close\nContent-Type: application/json\nContent-Length: {}\n\n{body}",
        body.len()
    );
    assert!(answered(&address, &call).contains(" 401 "));
    let token = std::fs::read_to_string(home.data().join("token")).unwrap();
    let mode = |file: &str| std::fs::metadata(home.data().join(file)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("token"), mode("server")), (0o600, 0o600));
    assert!(get("/v1/runs", &format!("Authorization: Bearer {}\n", token.trim())).contains(" 200 "));
    home.says(&["run", "--goal", "hello"]);
    assert_eq!(home.kept(), 1);
    kill(dev);
}

/// proves: the file with the server's address is used only if its owner wrote it and a process of
/// the owner listens there.
#[test]
fn s1_a_door_that_somebody_else_may_have_written_is_not_taken() {
    let home = Home::new();
    home.says(&["run", "--goal", "hello"]);
    let (door, put) = (home.data().join("server"), |text: &str, mode: u32| {
        let path = home.data().join("server");
        std::fs::remove_file(&path).ok();
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    });
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    let text = |address: &str| format!(r#"{{"url":"http://{address}","token":null,"is_open":true}}"#);
    let nobody = { std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap() };
    let too_long = text(&address.to_string()) + &" ".repeat(5000);
    let cases = [
        (text(&address.to_string()), 0o644),
        (text(&address.to_string()), 0o620),
        (text(&nobody.to_string()), 0o600),
        (text("192.0.2.7:80"), 0o600),
        (too_long, 0o600),
        ("nonsense".into(), 0o600),
    ];
    for (number, (text, mode)) in cases.iter().enumerate() {
        put(text, *mode);
        home.says(&["run", "--goal", "hello"]);
        assert!(listener.accept().is_err(), "{text} {mode:o}: it was asked");
        assert_eq!(home.kept(), number + 2, "{text}");
    }
    std::fs::remove_file(&door).ok();
    std::os::unix::fs::symlink(home.0.join("elsewhere"), &door).unwrap();
    std::fs::write(home.0.join("elsewhere"), text(&address.to_string())).unwrap();
    std::fs::set_permissions(home.0.join("elsewhere"), std::fs::Permissions::from_mode(0o600)).unwrap();
    home.says(&["run", "--goal", "hello"]);
    assert!(listener.accept().is_err(), "a link was followed");
}

/// proves: while a `dev` runs, a `run` of the same user runs in that `dev` and is stored there,
/// with the agents beside its file. Options that the `dev` can't take over are reported.
#[test]
fn a_run_goes_to_the_dev_of_its_user() {
    let home = Home::new();
    let (dev, _) = home.dev(&[]);
    let settings = home.0.join("worker.json");
    std::fs::write(&settings, "{}").unwrap();
    let said = home.says(&["run", "--goal", "hello", "--config", settings.to_str().unwrap()]);
    assert!(said.contains("--config is not used") && !said.contains("not stored"), "{said}");
    assert_eq!(home.kept(), 1);
    std::fs::write(home.0.join("agents.yaml"), "- {agent_id: parrot, kind: builtin, builtin: echo}\n")
        .unwrap();
    let graph = home.0.join("graph.yaml");
    std::fs::write(&graph, "steps: [{id: say, agent_id: parrot, task_description: Hello.}]\n").unwrap();
    let said = home.says(&["run", graph.to_str().unwrap()]);
    assert!(said.contains("agents from ") && !said.contains("is not used"), "{said}");
    assert_eq!(home.kept(), 2);
    assert!(home.says(&["runs", "show", "@last"]).contains("parrot"));
    assert!(home.says(&["run", graph.to_str().unwrap()]).contains("agents from "), "it has that one");
    // An existing agent is not replaced, a program is not looked up in another folder, and a policy
    // is not silently ignored.
    let policy = home.0.join("policy.yaml");
    std::fs::write(&policy, "kinds: [llm]\n").unwrap();
    let (graph, policy) = (graph.to_str().unwrap(), policy.to_str().unwrap());
    for (agents, more, why) in [
        ("- {agent_id: parrot, kind: builtin, builtin: fail}\n", &[][..], "has another agent of this name"),
        ("- {agent_id: own, kind: command, command: [sh, own.sh]}\n", &[], "in its own folder"),
        ("[]", &["--policy", policy], "--policy can't be used"),
    ] {
        std::fs::write(home.0.join("agents.yaml"), agents).unwrap();
        let output = home.output(&[&["run", graph], more].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(why) && said.contains("hint: "), "{said}");
    }
    assert_eq!(home.kept(), 3, "none of these was begun");
    kill(dev);
}

/// proves: commands that only read wait for each other and do not keep a run from the directory.
#[test]
fn commands_that_look_at_once_wait_for_each_other() {
    let home = Home::new();
    home.says(&["run", "--goal", "hello"]);
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| (0..3).for_each(|_| drop(home.says(&["runs", "list"]))));
        }
        for _ in 0..3 {
            let said = home.says(&["run", "--goal", "hello"]);
            assert!(!said.contains("not stored"), "{said}");
        }
    });
    assert_eq!(home.kept(), 4);
}

#[test]
fn what_is_to_be_kept_nowhere_is_kept_nowhere() {
    let home = Home::new();
    home.says(&["run", "--goal", "hello", "--no-keep"]);
    assert!(!home.data().exists());
    let said = home.command(&["run", "--goal", "hello"]).env_remove("HOME").output().unwrap();
    assert!(String::from_utf8_lossy(&said.stderr).contains("not stored: HOME is not set"), "{said:?}");
    let file = home.0.join("file");
    std::fs::write(&file, "").unwrap();
    let said = home.command(&["run", "--goal", "hello"]).env("XDG_DATA_HOME", &file).output().unwrap();
    assert!(
        said.status.success() && String::from_utf8_lossy(&said.stderr).contains("not stored"),
        "{said:?}"
    );
    assert!(Path::new(&file).is_file());
}

/// proves: a server of one deployment rejects commands for another.
#[test]
fn a_server_of_another_namespace_refuses() {
    let home = Home::new();
    let (dev, address) = home.dev(&["--namespace", "ours"]);
    let token = home.data().join("token");
    let list = |namespace: &str| {
        let mut command = home.command(&["runs", "list", "--namespace", namespace]);
        command.env("TRELLIS_URL", format!("http://{address}")).env("TRELLIS_TOKEN_FILE", &token);
        command.output().unwrap()
    };
    assert!(list("ours").status.success() && list("").status.success(), "{:?}", list(""));
    let refused = list("theirs");
    assert!(!refused.status.success(), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("`ours`"), "{refused:?}");
    kill(dev);
}

/// The resident memory of a process, in bytes.
fn memory(child: &Child) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = text.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// Reads until the text arrives, and returns all that was read.
fn read_until(stream: &mut TcpStream, text: &str) -> String {
    let (mut all, mut part) = (Vec::new(), [0; 4096]);
    stream.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
    loop {
        let said = String::from_utf8_lossy(&all).into_owned();
        if said.contains(text) {
            return said;
        }
        let read = stream.read(&mut part).unwrap();
        assert!(read > 0, "it ended without {text:?}: {said}");
        all.extend_from_slice(&part[..read]);
    }
}

/// proves: a thousand watchers of one run cost little memory, and each sees its end.
#[test]
fn a_thousand_watch_one_run() {
    let home = Home::new();
    let (dev, address) = home.dev(&[]);
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let graph = home.0.join("graph.json");
    let ask = serde_json::json!({"id": "ask", "approve": {"who": "me", "question": "Ship it?"}});
    let ship = serde_json::json!({"trace_id": trace, "name": "ship", "steps": [ask]});
    std::fs::write(&graph, ship.to_string()).unwrap();
    home.says(&["submit", graph.to_str().unwrap()]);
    let token = std::fs::read_to_string(home.data().join("token")).unwrap();
    let request = format!(
        "GET /v1/runs/{trace}/events HTTP/1.1\r\nHost: {address}\r\nAccept: text/event-stream\r\nAuthorization: Bearer {}\r\n\r\n",
        token.trim()
    );
    let watch = || loop {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let said = read_until(&mut stream, "\r\n\r\n");
        if said.contains(" 200 ") {
            return stream;
        }
        // The server limits requests per second.
        assert!(said.contains(" 429 "), "{said}");
        thread::sleep(std::time::Duration::from_millis(100));
    };
    let mut watchers: Vec<TcpStream> = (0..100).map(|_| watch()).collect();
    let few = memory(&dev);
    watchers.extend((0..900).map(|_| watch()));
    let each = memory(&dev).saturating_sub(few) / 900;
    assert!(each < 128 << 10, "{each} bytes for each");
    home.says(&["answer", trace, "approve"]);
    for stream in &mut watchers {
        read_until(stream, "event: outcome");
    }
    kill(dev);
}

/// proves: an applied `default` agent stays, also after other runs in its directory. Reading a
/// missing directory does not create it.
#[test]
fn the_default_agent_of_a_directory_stays_as_it_was_applied() {
    let home = Home::new();
    let none = home.output(&["runs", "list", "--data", home.0.join("nowhere").to_str().unwrap()]);
    assert!(!none.status.success() && !home.0.join("nowhere").exists(), "{none:?}");
    home.says(&["run", "--goal", "hello"]);
    let own = home.0.join("own.json");
    let profile = serde_json::json!([{"agent_id": "default", "kind": "builtin", "builtin": "spend"}]);
    std::fs::write(&own, profile.to_string()).unwrap();
    home.says(&["agents", "apply", own.to_str().unwrap()]);
    home.says(&["run", "--goal", "hello"]);
    assert!(home.says(&["agents", "show", "default"]).contains("spend"));
    let dev = home.output(&["dev", "--listen", "127.0.0.1:0"]);
    assert!(dev.status.success(), "{dev:?}");
    assert!(home.says(&["agents", "show", "default"]).contains("spend"));
}

/// proves: a worker that is killed on the playground in the middle of its work is replaced, and its
/// run continues.
#[test]
fn f01_a_worker_killed_on_the_playground_is_replaced_and_its_run_goes_on() {
    let home = Home::new();
    let (child, address) = home.dev(&[]);
    let token = std::fs::read_to_string(home.data().join("token")).unwrap();
    let said = home.says(&[
        "submit", "--goal", "pay", "--agent", "spend", "--input", "calls=4", "--input", "ms=700", "--input",
        "usd=0.01", "-q",
    ]);
    let trace = said.split_whitespace().next().unwrap();
    let described = || home.says(&["runs", "show", trace, "-o", "json"]);
    while !described().contains("\"status\": \"working\"") {
        thread::sleep(std::time::Duration::from_millis(50));
    }
    let request = format!(
        "POST /playground/kill HTTP/1.1\nHost: {address}\nAuthorization: Bearer {}\nContent-Length: 0\nConnection: close\n\n",
        token.trim()
    );
    assert_eq!(answered(&address, &request), "HTTP/1.1 202 Accepted");
    let ended = home.says(&["runs", "watch", trace]);
    assert!(ended.contains("completed"), "{ended}");
    let described: serde_json::Value = serde_json::from_str(&described()).unwrap();
    let context = &described["contexts"][0];
    assert_eq!(context["attempts"], 2, "{described}");
    let spent: f64 = context["budget"]["spent"]["cost_usd"].as_f64().unwrap();
    assert!((0.04..=0.05).contains(&spent), "four calls, and one of unknown end at most: {described}");
    kill(child);
}
