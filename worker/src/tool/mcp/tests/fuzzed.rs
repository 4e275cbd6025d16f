//! Conversations with tool servers that are made from a seed (S5). `TRELLIS_ATTACK_SECONDS` sets
//! their duration, and `TRELLIS_ATTACK_SEED` the first seed. A failure names its own seed.

use std::{
    cell::Cell,
    collections::HashMap,
    sync::{Arc, Mutex, Once},
    time::Duration,
};

use futures_util::{StreamExt as _, stream};
use serde_json::json;
use tests::servers::{Attack, FuzzedTools, HostileServer, Said, TOOL, Then, mutated};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream},
    sync::watch,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;
use world::dice::Dice;

use super::{McpServer, call, program, start};
use crate::{
    relay::LastFault,
    secret::Redactor,
    tool::{
        call::Output,
        mcp::{
            Confinement, Server,
            connection::{Connection, Listener, START_TIMEOUT, greet, lines},
            offer::Tools,
            server::START_WAIT,
            supervise::{State, Supervisor},
        },
    },
};

/// The number of seeds that are tried if no duration is set.
const SEEDS: u64 = 300;
const SEEDS_OVER_HTTP: u64 = 60;
/// The number of seeds that are tried at the same time, each with its own server.
const AT_ONCE: usize = 20;
/// The limit for a call in its settings.
const CALL: Duration = Duration::from_secs(2);
/// The time that a call takes in addition, for a ping to the server and the end of the connection.
const MARGIN: Duration = Duration::from_secs(15);
/// The most bytes that a call returns: the limit for one answer.
const MAX_OUTPUT_BYTES: usize = 5 << 20;

thread_local! {
    static PANICS: Cell<u32> = const { Cell::new(0) };
}

/// Counts panics of this thread, including those in tasks.
fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.set(PANICS.get() + 1);
            usual(info);
        }));
    });
}

#[expect(clippy::disallowed_methods, reason = "the environment sets the duration of the test")]
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The seeds of a test: this number of them, or as many as the duration allows.
fn seeds(count: u64) -> impl Iterator<Item = u64> {
    let first = number("TRELLIS_ATTACK_SEED").unwrap_or(0);
    let seconds = number("TRELLIS_ATTACK_SECONDS").map(Duration::from_secs);
    let begun = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    let now = move || std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().saturating_sub(begun);
    (first..).take_while(move |seed| match seconds {
        Some(seconds) => now() < seconds,
        None => *seed < first + count,
    })
}

/// Speaks the conversation of its seed, until the other side leaves.
async fn speak(stream: DuplexStream, mut tools: FuzzedTools) {
    let (input, mut output) = tokio::io::split(stream);
    let mut input = BufReader::new(input).lines();
    while let Ok(Some(message)) = input.next_line().await {
        let Said { bytes, then } = tools.answer(&message);
        if output.write_all(&bytes).await.is_err() || then == Then::Ends {
            return;
        }
        if then == Then::IsDeaf {
            std::future::pending::<()>().await;
        }
    }
}

/// The outputs of two calls of such a server's tool.
async fn called(seed: u64) -> [Output; 2] {
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    let speaking = tokio::spawn(speak(theirs, FuzzedTools::new(seed)));
    let (sender, state) = watch::channel(State::Starting);
    let supervisor = Supervisor {
        name: "bad".into(),
        settings: program(&[]),
        state: sender,
        tools: Tools::default(),
        secrets: Redactor::default(),
        confinement: Confinement { sandbox: None, directory: std::env::temp_dir() },
        first_start_done: CancellationToken::new(),
        stop: CancellationToken::new(),
    };
    let server = Server {
        name: "bad".into(),
        timeout: CALL,
        state,
        tools: supervisor.tools.clone(),
        secrets: Redactor::default(),
        first_start_done: supervisor.first_start_done.clone(),
        wait_until: Instant::now(),
    };
    let keeping = tokio::spawn(async move {
        let (listener, fault) = (Listener::default(), LastFault::default());
        let transport = lines(tokio::io::split(ours), &fault);
        let why = match timeout(START_TIMEOUT, greet(transport, &listener, &fault)).await {
            Ok(Ok(service)) => supervisor.keep(Connection::new(service, None, listener, fault, None)).await,
            Ok(Err(why)) => why,
            Err(_) => "it did not start in time".into(),
        };
        supervisor.state.send_replace(State::Down(why.into()));
        // The reason must be readable for later calls, until the supervisor stops.
        supervisor.stop.cancelled().await;
    });
    let given = json!({"text": "x"});
    let outputs = [server.call(TOOL, &given, None).await, server.call(TOOL, &given, None).await];
    keeping.abort();
    speaking.abort();
    outputs
}

/// A failure begins with words of the worker, followed by those of the server.
fn check(seed: u64, output: &Output) {
    let said = match output {
        Ok(said) | Err(said) => said,
    };
    assert!(said.len() < MAX_OUTPUT_BYTES, "seed {seed}: {} bytes", said.len());
    let Err(said) = output else { return };
    let beginnings = [
        "the server `bad` can't be used now: ",
        "the server `bad` has not started yet",
        "the server `bad` has no tool `echo`",
        "the server `bad` answered with an error: ",
        "the connection to the server `bad` broke during the call; whether the call had an effect is not known: ",
        "`bad:echo` did not answer within ",
        "the arguments of `bad:echo` are invalid",
        // The server itself reports that the call failed.
        "\u{1b}[2J",
        "[no content]",
    ];
    assert!(
        beginnings.iter().any(|beginning| said.starts_with(beginning)),
        "seed {seed}: {}",
        said.chars().take(300).collect::<String>()
    );
}

/// proves: for any messages of a tool server, a call ends in time, with an answer or a plain error,
/// and without a panic.
#[tokio::test(start_paused = true)]
async fn s5_a_call_ends_for_any_answer_of_a_tool_server() {
    count_panics();
    let (mut answered, mut tried, mut kinds) = (0, 0, HashMap::new());
    for seed in seeds(SEEDS) {
        let begun = Instant::now();
        let outputs = called(seed).await;
        let within = 2 * (START_WAIT + CALL + MARGIN);
        assert!(begun.elapsed() < within, "seed {seed}: {:?}", begun.elapsed());
        for output in &outputs {
            check(seed, output);
            tried += 1;
            match output {
                Ok(_) => answered += 1,
                Err(said) => *kinds.entry(said.chars().take(34).collect::<String>()).or_insert(0) += 1,
            }
        }
        assert_eq!(PANICS.get(), 0, "seed {seed}: a task panicked");
    }
    println!("{tried} calls, {answered} answered; {kinds:#?}");
    assert!(answered > 0 && kinds.len() >= 4, "the seeds reach too few parts of a conversation: {kinds:?}");
}

/// proves: the same over HTTP, for any answers, heads and streams of events.
#[tokio::test(flavor = "multi_thread")]
async fn s5_a_call_ends_for_any_answer_of_a_tool_server_over_http() {
    let all: Vec<u64> = seeds(SEEDS_OVER_HTTP).take(1000).collect();
    let tried = all.into_iter().map(|seed| async move {
        let state = Mutex::new((Dice::new(seed), FuzzedTools::new(seed)));
        let server = HostileServer::start(move |request| {
            let (dice, tools) = &mut *state.lock().unwrap();
            over_http(request, dice, tools)
        })
        .await;
        let url = Some(format!("http://127.0.0.1:{}/mcp", server.port()));
        let settings = McpServer { command: Vec::new(), url, timeout_ms: Some(2000), ..program(&[]) };
        let servers = start("bad", settings);
        let begun = Instant::now();
        let output = call(&servers, "bad:echo", json!({"text": "x"})).await;
        assert!(begun.elapsed() < START_WAIT + MARGIN, "seed {seed}: {:?}", begun.elapsed());
        check(seed, &output);
        servers.stop().await;
        assert!(begun.elapsed() < START_WAIT + 2 * MARGIN, "seed {seed} stops: {:?}", begun.elapsed());
        output.is_ok()
    });
    let answered: Vec<bool> = stream::iter(tried).buffered(AT_ONCE).collect().await;
    assert!(answered.iter().any(|is| *is) && !answered.iter().all(|is| *is), "{answered:?}");
}

/// An answer as JSON, or as a stream of events, and sometimes as neither.
fn over_http(request: &str, dice: &mut Dice, tools: &mut FuzzedTools) -> Attack {
    let Some((_, message)) = request.split_once("\r\n\r\n") else { return Attack::default() };
    if !request.starts_with("POST") {
        return match dice.below(3) {
            0 => Attack::once("HTTP/1.1 405 No\r\ncontent-length: 0\r\n\r\n"),
            1 => Attack::once(
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 10\r\n\r\nretry: 0\n\n",
            ),
            _ => Attack::drip("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n", ": x\n\n"),
        };
    }
    let Said { bytes, then } = tools.answer(message);
    if bytes.is_empty() && then == Then::GoesOn {
        return Attack::once("HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n");
    }
    let (kind, body) = match dice.below(2) {
        0 => ("application/json", bytes),
        _ => {
            let events = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            ("text/event-stream", events.flat_map(|line| [b"data: ", line, b"\n\n"].concat()).collect())
        }
    };
    let session = if dice.below(2) == 0 { "mcp-session-id: 7\r\n" } else { "" };
    let length = match (then, dice.below(8)) {
        (Then::GoesOn, 1..) => body.len(),
        _ => body.len() + 100,
    };
    let head =
        format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n{session}content-length: {length}\r\n\r\n");
    let whole = [head.into_bytes(), body].concat();
    match dice.below(8) {
        0 => Attack::once(mutated(whole, dice)),
        _ if then == Then::IsDeaf => {
            Attack { first: whole, again: b"\n".to_vec(), pause: Duration::from_millis(20) }
        }
        _ => Attack::once(whole),
    }
}

/// proves: a server that asks and never reads an answer is left before its questions take memory. A
/// server that reads the answers may continue to ask.
#[tokio::test(start_paused = true)]
async fn s5_a_server_of_tools_that_asks_and_does_not_read_is_left() {
    for (reads, says) in [(false, "it sends requests and does not read the answers"), (true, "")] {
        let (ours, theirs) = tokio::io::duplex(4 << 10);
        let heard = Arc::new(Mutex::new(0));
        let speaking = tokio::spawn(ask_on(theirs, reads, heard.clone()));
        let (listener, fault) = (Listener::default(), LastFault::default());
        let service = greet(lines(tokio::io::split(ours), &fault), &listener, &fault).await.unwrap();
        let mut connection = Connection::new(service, None, listener, fault, None);
        match reads {
            false => {
                let ended = timeout(Duration::from_secs(60), connection.ended()).await;
                assert!(ended.expect("the worker ends the connection").contains(says));
            }
            true => {
                tokio::time::sleep(Duration::from_secs(20)).await;
                assert!(connection.link.is_usable());
                assert_eq!(*heard.lock().unwrap(), 5000, "each call has its answer");
            }
        }
        speaking.abort();
    }
}

/// Greets the client, and asks five thousand questions.
async fn ask_on(stream: DuplexStream, reads: bool, heard: Arc<Mutex<usize>>) {
    let (input, mut output) = tokio::io::split(stream);
    let mut input = BufReader::new(input).lines();
    let hello = super::hostile::HELLO;
    let _ = input.next_line().await;
    let _ = output.write_all(format!("{hello}\n").as_bytes()).await;
    let _ = input.next_line().await;
    let asking = async {
        for number in 0..5000 {
            let question = format!("{{\"jsonrpc\":\"2.0\",\"id\":\"q{number}\",\"method\":\"ping\"}}\n");
            let _ = output.write_all(question.as_bytes()).await;
        }
        std::future::pending::<()>().await;
    };
    let reading = async {
        while reads && let Ok(Some(_)) = input.next_line().await {
            *heard.lock().unwrap() += 1;
        }
        std::future::pending::<()>().await;
    };
    tokio::join!(asking, reading);
}
