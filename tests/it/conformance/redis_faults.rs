//! The store when Redis fails: every call ends in bounded time, errors name the operation, no write
//! is partial, and the store reconnects by itself.

use std::{error::Error as _, time::Duration};

use bus::Position;
use coordinator::store::{
    CommitOutcome, Correction, Error, LogMark, MarkOutcome, Member, NewMark, Redis, Replaces, Store,
    UNREADABLE, Write,
};
use domain::subject::Partition;
use tokio::time::Instant;
use trellis_tests::{
    cluster::SOON,
    servers::{Proxy, RedisServer},
};

use super::store::{PARTITIONS, agent, at, commit, key, redis, trace, version, write};

/// A reconnect and an answer take at most 6 s. The rest allows for a busy machine; reconnects one
/// after another would take minutes.
pub(super) const BOUND: Duration = Duration::from_secs(40);

/// Sends a command to the server directly. A server that changes its role closes its connections.
pub(super) async fn tell(server: &RedisServer, words: &[&str]) -> redis::Value {
    let client = redis::Client::open(server.url()).unwrap();
    let mut command = redis::cmd(words[0]);
    words[1..].iter().for_each(|word| {
        command.arg(*word);
    });
    let mut last = None;
    let deadline = Instant::now() + SOON;
    while Instant::now() < deadline {
        let answered = match client.get_multiplexed_async_connection().await {
            Ok(mut connection) => command.query_async(&mut connection).await,
            Err(error) => Err(error),
        };
        match answered {
            Ok(value) => return value,
            Err(error) => last = Some(error),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{words:?}: {last:?}");
}

/// Repeats a call until it succeeds, as callers of the store do.
pub(super) async fn recovered(store: &Store) {
    let deadline = Instant::now() + SOON;
    while store.ping().await.is_err() {
        assert!(Instant::now() < deadline, "the store did not recover");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Connects as the default user: a user created at runtime is lost when the server restarts.
async fn of_its_owner(server: &RedisServer) -> Store {
    Store::Redis(Redis::connect(&server.url(), "".parse().unwrap(), PARTITIONS).await.unwrap())
}

/// Proves that the script is sent again with its source: without that, each commit after a flush is
/// an error.
#[tokio::test]
async fn f20_a_flushed_script_is_loaded_again_within_the_call() {
    let server = RedisServer::start();
    let store = redis(&server, "").await;
    for version in 1..=3 {
        tell(&server, &["SCRIPT", "FLUSH"]).await;
        let writes: Vec<Write> = (1..=40).map(|number| write(trace(number), version)).collect();
        let answers = store.commit(&writes).await.unwrap();
        assert!(answers.iter().all(|answer| matches!(answer, CommitOutcome::Done { .. })), "{answers:?}");
    }
    tell(&server, &["SCRIPT", "FLUSH"]).await;
    let sent = coordinator::store::SentOutboxes {
        trace_id: trace(1),
        outboxes: vec![key(3)],
        version: Some(3),
        stamp: None,
        timer: Some(at(1)),
        keeps_earlier_timer: false,
        all: false,
    };
    store.sent(&[sent]).await.unwrap();
    assert_eq!(store.load(&[trace(1)]).await.unwrap()[0].counter % 3, 0, "a script ran twice");
}

/// Proves that Redis refuses the script's first write for lack of memory, and that one refused
/// commit makes the call an error.
#[tokio::test]
async fn f20_a_full_server_refuses_a_write_whole() {
    let server = RedisServer::start_with(&["--maxmemory", "12mb", "--maxmemory-policy", "noeviction"]);
    let store = redis(&server, "").await;
    let large = "x".repeat(1 << 20);
    let fill = |number: u128, version: u64| Write {
        fields: vec![
            ("head".into(), Some(format!("version {version}"))),
            (format!("f{version}"), Some(large.clone())),
        ],
        values: vec![(format!("v{version}"), Some("x".into()))],
        timer: Some(at(version)),
        outbox: Some((key(version), format!("{version}"))),
        ..write(trace(number), version)
    };
    let mut acknowledged = 0;
    let refused = loop {
        match store.commit(&[fill(1, acknowledged + 1)]).await {
            Ok(answers) => assert!(matches!(answers[0], CommitOutcome::Done { .. })),
            Err(error) => break error,
        }
        acknowledged += 1;
        assert!(acknowledged < 50, "50 traces do not fit in 12 MB");
    };
    assert_eq!(refused.to_string(), "could not commit traces to Redis");
    assert!(refused.source().unwrap().to_string().contains("OOM"), "{refused:?}");
    assert!(store.commit(&[write(trace(2), 1), fill(3, 1)]).await.is_err());

    let loaded = store.load(&[trace(1), trace(2), trace(3)]).await.unwrap();
    let record = loaded[0].record.as_ref().unwrap();
    assert_eq!((record.version, loaded[0].counter), (acknowledged, acknowledged));
    assert_eq!(record.fields.len() as u64, acknowledged + 1);
    assert_eq!(record.values.len() as u64, acknowledged);
    assert_eq!(record.outbox[&key(acknowledged)], acknowledged.to_string());
    let small = loaded[1].record.as_ref().is_none_or(|record| record.fields["head"] == "version 1");
    assert!(small, "a commit beside the rejected one is stored in part: {:?}", loaded[1]);
    assert!(loaded[2].record.is_none());

    tell(&server, &["CONFIG", "SET", "maxmemory", "0"]).await;
    let more = commit(&store, fill(1, acknowledged + 1)).await;
    assert_eq!(more, CommitOutcome::Done { counter: acknowledged + 1 });
}

/// Proves that a key of another type stops the script before its first write. It happens once: then
/// the key is removed, and the counter has gone back.
#[tokio::test]
async fn f20_a_key_of_another_type_leaves_no_partial_write() {
    let server = RedisServer::start();
    let store = redis(&server, "").await;
    commit(&store, Write { timer: Some(at(1)), opened_at: Some(at(1)), ..write(trace(1), 1) }).await;
    let home = domain::subject::Partition::of(trace(1), PARTITIONS);
    for key in ["timers", "runs", "counter"].map(|key| format!("trellis:{{{home}}}:{key}")) {
        tell(&server, &["DEL", &key]).await;
        tell(&server, &["LPUSH", &key, "spoilt"]).await;
        let error =
            store.commit(&[Write { opened_at: Some(at(1)), ..write(trace(1), 2) }]).await.unwrap_err();
        assert!(error.source().unwrap().to_string().contains("WRONGTYPE"), "{error:?}");
        assert_eq!(version(&store, trace(1)).await, Some(1), "{key}");
        assert_eq!(tell(&server, &["EXISTS", &key]).await, redis::Value::Int(0), "{key}");
    }
    assert_eq!(commit(&store, write(trace(1), 2)).await, CommitOutcome::Done { counter: 1 });
}

/// Proves the watchdog on a broken connection, and that acknowledged writes were synced to disk.
#[tokio::test]
async fn f16_a_killed_redis_keeps_what_it_acknowledged_and_is_found_again() {
    let mut server = RedisServer::start();
    let store = of_its_owner(&server).await;
    let mut acknowledged = 0;
    for round in 0..3 {
        let (wrote, mut written) = tokio::sync::watch::channel(acknowledged);
        let writer = {
            let store = store.clone();
            tokio::spawn(async move {
                let mut done = acknowledged;
                while let Ok(answers) = store.commit(&[write(trace(1), done + 1)]).await {
                    assert!(matches!(answers[0], CommitOutcome::Done { .. }), "{answers:?}");
                    done += 1;
                    wrote.send_replace(done);
                }
                done
            })
        };
        // Kills the server while the writer is busy.
        written.wait_for(|done| *done >= acknowledged + 20).await.unwrap();
        server.kill();
        let done = writer.await.unwrap();
        assert!(done > acknowledged, "round {round} wrote nothing");
        let error = store.ping().await.unwrap_err();
        assert_eq!(error.to_string(), "could not ping Redis");
        server.restart();
        recovered(&store).await;
        // One write may be stored although its answer was lost; never more than one.
        let found = version(&store, trace(1)).await.unwrap();
        assert!(found == done || found == done + 1, "acknowledged {done}, found {found}");
        assert_eq!(store.load(&[trace(1)]).await.unwrap()[0].counter, found);
        acknowledged = found;
    }
}

/// Proves that the mark distinguishes a restarted server from the earlier one, although both have
/// the same counter: the restart may have lost writes that later ones replaced.
#[tokio::test]
async fn f17_a_mark_that_was_seen_before_a_restart_is_not_set_after_it() {
    let mut server = RedisServer::start();
    let store = of_its_owner(&server).await;
    commit(&store, write(trace(1), 1)).await;
    let partition = Partition::of(trace(1), PARTITIONS);
    let seen = store.log_marks(&[partition]).await.unwrap().remove(0);
    server.kill();
    server.restart();
    recovered(&store).await;
    let mark = |seen| NewMark { partition, seen, position: Position { log: 1, sequence: 5 } };
    let marked = store.set_log_marks(&[mark(seen.clone())]).await.unwrap().remove(0);
    let MarkOutcome::Differs(found) = marked else { panic!("the mark was not rejected") };
    assert_ne!(found.run, seen.run);
    assert_eq!(LogMark { run: seen.run.clone(), ..found.clone() }, seen);
    assert_eq!(store.set_log_marks(&[mark(found)]).await.unwrap(), [MarkOutcome::Done]);
}

/// Proves that a call survives a quick restart: its reconnect tries more than once.
#[tokio::test]
async fn f16_a_call_waits_for_a_redis_that_is_back_at_once() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port()).await;
    let url = format!("redis://127.0.0.1:{}", proxy.port());
    let store = Store::Redis(Redis::connect(&url, "".parse().unwrap(), PARTITIONS).await.unwrap());
    proxy.hang_up(2);
    assert!(store.ping().await.is_err(), "the old connection is broken");
    store.ping().await.unwrap();
    assert_eq!(proxy.refusing(), 0, "two tries were refused");
}

/// Proves the watchdog on a frozen connection: the server works, new connections work, and the
/// current one never answers again. Without the watchdog every later call fails.
#[tokio::test]
async fn a_connection_that_went_silent_is_replaced() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port()).await;
    let url = format!("redis://127.0.0.1:{}", proxy.port());
    let store = Store::Redis(Redis::connect(&url, "".parse().unwrap(), PARTITIONS).await.unwrap());
    for round in 1..=2 {
        commit(&store, write(trace(1), round)).await;
        proxy.freeze();
        let began = Instant::now();
        let mut failed = 0;
        while store.ping().await.is_err() {
            failed += 1;
            assert!(failed <= 2, "the store stops after two tries without an answer");
        }
        assert!(began.elapsed() < BOUND, "{:?}", began.elapsed());
        assert_eq!(version(&store, trace(1)).await, Some(round));
    }
}

/// Proves that each call has a timeout: a stopped server accepts connections and does not answer.
#[tokio::test]
async fn a_stopped_redis_fails_calls_in_bounded_time_and_is_found_again() {
    let server = RedisServer::start();
    let store = redis(&server, "").await;
    commit(&store, write(trace(1), 1)).await;
    server.pause();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(7) {
        let call = Instant::now();
        let error = store.load(&[trace(1)]).await.unwrap_err();
        assert!(call.elapsed() < BOUND, "{:?}", call.elapsed());
        assert!(error.source().unwrap().to_string().contains("within"), "{error:?}");
    }
    server.resume();
    recovered(&store).await;
    assert_eq!(version(&store, trace(1)).await, Some(1));
    assert_eq!(commit(&store, write(trace(1), 2)).await, CommitOutcome::Done { counter: 2 });
}

/// Proves that callers share one reconnect: separate reconnects would take minutes.
#[tokio::test]
async fn a_hundred_callers_of_a_stopped_redis_wait_no_longer_than_one() {
    let server = RedisServer::start();
    let store = redis(&server, "").await;
    server.pause();
    for _ in 0..2 {
        let began = Instant::now();
        let calls: Vec<_> = (0..100)
            .map(|_| {
                let store = store.clone();
                tokio::spawn(async move { store.ping().await.is_err() })
            })
            .collect();
        for call in calls {
            assert!(call.await.unwrap());
        }
        assert!(began.elapsed() < BOUND, "{:?}", began.elapsed());
    }
    server.resume();
    recovered(&store).await;
}

/// A coordinator uses this to notice that Redis lost acknowledged writes.
#[tokio::test]
async fn the_counter_goes_back_when_redis_is_wiped() {
    let mut server = RedisServer::start();
    let store = of_its_owner(&server).await;
    for version in 1..=3 {
        commit(&store, write(trace(1), version)).await;
    }
    server.wipe();
    let _broken = store.ping().await;
    recovered(&store).await;
    let loaded = store.load(&[trace(1)]).await.unwrap().pop().unwrap();
    assert!(loaded.record.is_none() && loaded.counter == 0, "{loaded:?}");
    let answer = commit(&store, write(trace(1), 4)).await;
    assert_eq!(answer, CommitOutcome::Conflict { version: 0, counter: 0 });
}

#[tokio::test]
async fn an_unreachable_server_is_a_clear_error_at_once() {
    let mut server = RedisServer::start();
    let url = format!("redis://user:secret@127.0.0.1:{}", server.port());
    server.kill();
    let began = Instant::now();
    let error = Redis::connect(&url, "".parse().unwrap(), PARTITIONS).await.unwrap_err();
    // No retry, which would take longer.
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(error.to_string(), format!("could not connect to Redis at 127.0.0.1:{}", server.port()));
    assert!(!format!("{error:?}").contains("secret"), "{error:?}");
}

#[tokio::test]
async fn a_login_is_used_and_never_shown() {
    let server = RedisServer::start_with(&["--requirepass", "sesame-7"]);
    let connect = async |login: &str| {
        let url = format!("redis://{login}127.0.0.1:{}", server.port());
        Redis::connect(&url, "".parse().unwrap(), PARTITIONS).await
    };
    let store = Store::Redis(connect(":sesame-7@").await.unwrap());
    store.ping().await.unwrap();
    assert!(!format!("{store:?}").contains("sesame"), "{store:?}");
    for wrong in ["", ":sesame-8@"] {
        let error = connect(wrong).await.unwrap_err();
        assert!(matches!(error, Error::Connect { .. }), "{error:?}");
        assert!(!format!("{error:?} {error}").contains("sesame"), "{error:?}");
    }
}

#[tokio::test]
async fn an_invalid_address_is_refused_with_the_accepted_forms() {
    let bad = [
        "localhost:6379",
        "http://localhost",
        "redis://:pw-7@host:port",
        "redis-cluster://",
        "redis-cluster://pw-7@a:1,,b:2",
        "redis-cluster://a:1/3",
        "redis-sentinel://a:1,b:2",
        "redis-sentinel://u:pw-7@a:1,b:nine/main",
    ];
    for url in bad {
        let error = Redis::connect(url, "".parse().unwrap(), PARTITIONS).await.unwrap_err();
        assert!(matches!(error, Error::Address { .. }), "{url}: {error:?}");
        assert!(error.to_string().contains("redis-sentinel://host:port"), "{error}");
        assert!(!format!("{error:?} {error}").contains("pw-7"), "{error:?}");
    }
}

/// proves: a stranger's write to one trace or one list does not prevent loading, committing and
/// waking other traces.
#[tokio::test]
async fn s3_an_invalid_trace_does_not_stop_the_others() {
    let server = RedisServer::start();
    let store = redis(&server, "").await;
    let traces: Vec<_> = (1..=3).map(trace).collect();
    let keys = async |of: &str| -> Vec<String> {
        redis::from_redis_value(tell(&server, &["KEYS", of]).await).unwrap()
    };
    for (bad, words) in [
        ("another text of its version", &["HSET", "KEY", "v", "01"][..]),
        ("no number", &["HSET", "KEY", "v", "one"]),
        ("no text", &["HSET", "KEY", "head", "BYTES"]),
        ("of another type", &["SET", "KEY", "text"]),
    ] {
        tell(&server, &["FLUSHALL"]).await;
        let timed = |number: usize| Write { timer: Some(at(5)), ..write(traces[number], 1) };
        for number in 0..3 {
            assert!(matches!(commit(&store, timed(number)).await, CommitOutcome::Done { .. }), "{bad}");
        }
        let key = keys(&format!("*trace:{}", traces[0])).await.remove(0);
        let mut command = redis::cmd(words[0]);
        for word in &words[1..] {
            match *word {
                "KEY" => command.arg(&key),
                "BYTES" => command.arg(&[0xff_u8, 0xfe][..]),
                word => command.arg(word),
            };
        }
        let client = redis::Client::open(server.url()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let _: redis::Value = command.query_async(&mut connection).await.unwrap();
        let timers = keys("*timers").await.remove(0);
        tell(&server, &["ZADD", &timers, "1", "no trace"]).await;

        let loaded = store.load(&traces).await.unwrap();
        let whole: Vec<bool> = loaded.iter().map(|loaded| loaded.record.is_some()).collect();
        assert_eq!(whole, [false, true, true], "{bad}");
        assert!(loaded[0].damaged.is_some() && loaded[1].damaged.is_none(), "{bad}");
        let fields = store.fields(&traces, &["head"]).await.unwrap();
        assert_eq!(fields[1]["head"], "version 1", "{bad}");
        let all: Vec<Partition> = Partition::all(PARTITIONS).collect();
        assert_eq!(store.due(&all, at(9), 10).await.unwrap().len(), 3, "{bad}");
        assert_eq!(tell(&server, &["ZSCORE", &timers, "no trace"]).await, redis::Value::Nil, "{bad}");
        let next: Vec<Write> = traces.iter().map(|trace| write(*trace, 2)).collect();
        let done = store.commit(&next).await.unwrap();
        let done: Vec<bool> = done.iter().map(|done| matches!(done, CommitOutcome::Done { .. })).collect();
        // An unreadable trace may still have its version.
        assert_eq!(done[1..], [true, true], "{bad}");
        store.delay(traces[0], at(100)).await.unwrap();
        store.delay(trace(9), at(100)).await.unwrap();
        let due = store.due(&all, at(200), 10).await.unwrap();
        assert!(due.len() <= 1 && !due.contains(&trace(9)), "{bad}: {due:?}");
    }
}

/// proves: coordinators keep sending and reading heartbeats although a stranger adds or replaces
/// entries, and keep reading the time although a stranger changes its correction.
#[tokio::test]
async fn s3_a_heartbeat_is_written_beside_foreign_data() {
    let server = RedisServer::start();
    let store = redis(&server, "").await;
    let member = |id: &str| Member { id: id.parse().unwrap(), says: String::new() };
    let beat = async |id: &str| {
        let heard = store.heartbeat(&member(id), 60_000).await.unwrap();
        heard.alive.iter().map(|member| member.id.to_string()).collect::<Vec<_>>()
    };
    beat("c1").await;
    let keys = tell(&server, &["KEYS", "*coordinators*"]).await;
    let key = redis::from_redis_value::<Vec<String>>(keys).unwrap().remove(0);
    let now = store.time().await.unwrap().read.millis();
    tell(&server, &["ZADD", &key, &now.to_string(), "!"]).await;
    tell(&server, &["ZADD", &key, &format!("{now}.5"), "c2 {}"]).await;
    assert_eq!(beat("c1").await, ["c1", "c2"]);
    assert_eq!(
        tell(&server, &["ZSCORE", &key, "!"]).await,
        redis::Value::Nil,
        "the invalid entry is removed"
    );
    tell(&server, &["SET", &key, "text"]).await;
    assert_eq!(beat("c1").await, ["c1"]);
    assert_eq!(beat("c2").await, ["c1", "c2"]);

    store.correct_time(Correction { number: 1, ahead_ms: 5 }).await.unwrap();
    let keys = tell(&server, &["KEYS", "*clock*"]).await;
    let clock = redis::from_redis_value::<Vec<String>>(keys).unwrap().remove(0);
    tell(&server, &["HSET", &clock, "one", "two"]).await;
    assert_eq!(store.time().await.unwrap().correction, Correction { number: 1, ahead_ms: 5 });
    tell(&server, &["SET", &clock, "text"]).await;
    assert_eq!(store.time().await.unwrap().correction, Correction::default());
    assert_eq!(tell(&server, &["EXISTS", &clock]).await, redis::Value::Int(0));
}

/// proves: an invalid counter, mark or list of a partition does not prevent loading traces or
/// waking others, and prevents at most one commit per partition. The counter has then gone back, as
/// after a loss.
#[tokio::test]
async fn s3_a_partition_continues_with_foreign_data_in_its_keys() {
    let server = RedisServer::start();
    let store = redis(&server, "").await;
    let traces: Vec<_> = (1..=3).map(trace).collect();
    let all: Vec<Partition> = Partition::all(PARTITIONS).collect();
    for (name, words) in [
        ("*counter", &["SET", "KEY", "text"][..]),
        ("*counter", &["SET", "KEY", "9223372036854775807"]),
        ("*counter", &["SET", "KEY", "-9000000000000000000"]),
        ("*counter", &["SET", "KEY", "9007199254740993"]),
        ("*counter", &["SET", "KEY", "999999999999999"]),
        ("*counter", &["SET", "KEY", "-5"]),
        ("*counter", &["SET", "KEY", " 7"]),
        ("*counter", &["SET", "KEY", "007"]),
        ("*counter", &["SET", "KEY", "+7"]),
        ("*counter", &["SET", "KEY", "1e3"]),
        ("*counter", &["HSET", "KEY", "a", "b"]),
        ("*mark", &["SET", "KEY", "text"]),
        ("*mark", &["HSET", "KEY", "a", "b"]),
        ("*timers", &["SET", "KEY", "text"]),
        ("*ended", &["SET", "KEY", "text"]),
        ("*runs", &["SET", "KEY", "text"]),
        ("*}:agents", &["SET", "KEY", "text"]),
        ("*}:agents", &["ZADD", "KEY", "inf", "revision"]),
        ("*}:agents", &["ZADD", "KEY", "1e300", "revision"]),
        ("*}:agents", &["ZADD", "KEY", "1.5", "revision"]),
        ("*}:agents", &["ZADD", "KEY", "-1", "revision"]),
    ] {
        tell(&server, &["FLUSHALL"]).await;
        let stored = |number: usize, version: u64| Write {
            timer: Some(at(5)),
            ended_at: Some(at(6)),
            opened_at: Some(at(4)),
            profiles: Some(1),
            ..write(traces[number], version)
        };
        store.apply_agents(&[agent("a", 1, Some("1"))], 0).await.unwrap();
        for number in 0..3 {
            assert!(matches!(commit(&store, stored(number, 1)).await, CommitOutcome::Done { .. }));
        }
        let marks = store.log_marks(&all).await.unwrap();
        let position = Position { log: 1, sequence: 1 };
        let new =
            |(partition, seen): (&Partition, LogMark)| NewMark { partition: *partition, seen, position };
        let new: Vec<NewMark> = all.iter().zip(marks).map(new).collect();
        assert!(store.set_log_marks(&new).await.unwrap().iter().all(|marked| *marked == MarkOutcome::Done));
        let keys = tell(&server, &["KEYS", name]).await;
        for key in redis::from_redis_value::<Vec<String>>(keys).unwrap() {
            tell(&server, &["DEL", &key]).await;
            let words: Vec<&str> =
                words.iter().map(|word| if *word == "KEY" { key.as_str() } else { word }).collect();
            tell(&server, &words).await;
        }
        let bad = format!("{name}: {words:?}");
        let loaded = store.load(&traces).await.unwrap();
        assert!(loaded.iter().all(|loaded| loaded.record.is_some()), "{bad}: {loaded:?}");
        store.counters(&all).await.unwrap();
        store.due(&all, at(9), 10).await.unwrap();
        store.ended(&all, at(9), 10).await.unwrap();
        let marks = store.log_marks(&all).await.unwrap();
        assert!(name != "*mark" || marks.iter().all(|mark| mark.position.is_none()), "{bad}");
        for (number, id) in traces.iter().enumerate() {
            // If the result of the commit is unknown, it is made again.
            let done = match store.commit(&[stored(number, 2)]).await {
                Ok(done) => done[0],
                Err(_) => commit(&store, stored(number, 2)).await,
            };
            let CommitOutcome::Done { counter } = done else { panic!("{bad}: {done:?}") };
            // Otherwise each commit would look like a loss for ever.
            let read = store.load(&[*id]).await.unwrap()[0].counter;
            assert_eq!(read, counter, "{bad}: the counter of the commit and the counter that is read differ");
        }
        assert_eq!(store.due(&all, at(9), 10).await.unwrap().len(), 3, "{bad}");
        let lost = store.counters(&all).await.unwrap().iter().sum::<u64>();
        assert!(
            ["*mark", "*}:agents"].contains(&name) || lost < 6,
            "{bad}: the loss was not noticed: {lost}"
        );
        let marks = store.log_marks(&all).await.unwrap();
        let new =
            |(partition, seen): (&Partition, LogMark)| NewMark { partition: *partition, seen, position };
        let new: Vec<NewMark> = all.iter().zip(marks).map(new).collect();
        assert!(
            store.set_log_marks(&new).await.unwrap().iter().all(|marked| *marked == MarkOutcome::Done),
            "{bad}"
        );
    }
}

/// proves: an invalid entry under the key of a trace is replaced as a whole by the coordinator that
/// rebuilt the trace, unless another coordinator was first.
#[tokio::test]
async fn s3_data_that_is_not_a_trace_is_replaced_as_a_whole() {
    let server = RedisServer::start();
    let store = redis(&server, "").await;
    for (bad, words) in [
        ("another text of its version", &["HSET", "KEY", "v", "01", "x", "?"][..]),
        ("no number", &["HSET", "KEY", "v", "one"]),
        ("too large", &["HSET", "KEY", "v", "99999999999999999999"]),
        ("no version", &["HDEL", "KEY", "v"]),
        ("of another type", &["SET", "KEY", "text"]),
    ] {
        tell(&server, &["FLUSHALL"]).await;
        let first = Write { outbox: Some((key(1), "{}".into())), ..write(trace(1), 1) };
        commit(&store, first).await;
        let keys = tell(&server, &["KEYS", &format!("*trace:{}", trace(1))]).await;
        let stored: Vec<String> = redis::from_redis_value(keys).unwrap();
        let words: Vec<&str> =
            words.iter().map(|word| if *word == "KEY" { stored[0].as_str() } else { word }).collect();
        tell(&server, &words).await;
        let expected = store.versions(&[trace(1)]).await.unwrap()[0];
        assert_eq!(expected, if bad == "no version" { 0 } else { UNREADABLE }, "{bad}");
        let rebuilt = Write { expected, replaces: Replaces::Everything, ..write(trace(1), 5) };
        assert!(matches!(commit(&store, rebuilt.clone()).await, CommitOutcome::Done { .. }), "{bad}");
        let again = commit(&store, rebuilt).await;
        assert!(matches!(again, CommitOutcome::Conflict { version: 5, .. }), "{bad}: {again:?}");
        let record = store.load(&[trace(1)]).await.unwrap().remove(0).record.unwrap();
        assert_eq!((record.version, record.outbox.len()), (5, 0), "{bad}");
    }
}

/// proves: an invalid outbox name is ignored, and does not become a field of the trace.
#[tokio::test]
async fn s3_a_field_that_looks_like_an_outbox_is_not_one() {
    let server = RedisServer::start();
    let store = redis(&server, "").await;
    let first = Write { outbox: Some((key(1), "{}".into())), ..write(trace(1), 1) };
    commit(&store, first).await;
    let before = store.load(&[trace(1)]).await.unwrap();
    let keys = tell(&server, &["KEYS", &format!("*trace:{}", trace(1))]).await;
    let stored: Vec<String> = redis::from_redis_value(keys).unwrap();
    for field in ["x01-7", "x+1-7", "x1-7-", "x", "xyz"] {
        tell(&server, &["HSET", &stored[0], field, "{}"]).await;
    }
    assert_eq!(store.load(&[trace(1)]).await.unwrap(), before);
}
