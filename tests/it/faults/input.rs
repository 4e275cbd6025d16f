//! Messages that come several times, in any order, or at the same time.

use std::time::Duration;

use bus::{Consumer, StoredMessage};
use domain::{
    Amount, Json, TraceId, Usd,
    id::PoolName,
    span::Headers,
    subject::{Filter, Subject},
    wire::{
        self, Answer, Ask, AskMessage, Claim, EndStatus, Hold, Lease, Offer, Payload, Progress, Report,
        Verdict,
    },
};
use serde_json::{Value, json};
use trace::{Status, Trace};
use trellis_tests::{
    cluster::{SOON, eventually},
    processes::{Processes, Shape, fresh_trace},
    subjects::pool,
};

use super::{home, publish, repeats, root, running, sleep};

/// Pseudo-random numbers, the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % bound
    }

    fn shuffle<T>(&mut self, things: &mut [T]) {
        for last in (1..things.len()).rev() {
            things.swap(last, self.below(last + 1));
        }
    }
}

async fn ask(cluster: &Processes, trace_id: TraceId, ask: Ask) -> Answer {
    let payload: bytes::Bytes = serde_json::to_vec(&AskMessage { trace_id, ask }).unwrap().into();
    for _ in 0..1_000 {
        let wait = Duration::from_secs(5);
        let bus = &cluster.client.bus;
        let answer =
            bus.request(&Subject::Ask(pool(), home(trace_id)), &Headers::new(), payload.clone(), wait).await;
        match answer {
            Ok(answer) => return serde_json::from_slice(&answer).unwrap(),
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
    panic!("no answer about {trace_id}");
}

/// proves: a second delivery is harmless for every handler: a spawn is recognised by its content, a
/// claim by its token, a cost by its call, a result by its attempt, a cancel by the state. The test
/// plays the worker, and sends everything three times in random order.
#[tokio::test(flavor = "multi_thread")]
async fn f27_everything_three_times_in_random_order() {
    // The claims are made by hand and never ticked: no lease may expire meanwhile.
    let settings = json!({"lease_ms": 300_000});
    let cluster = Processes::start_as(|| Shape { settings, ..Shape::new(2, 0) }).await;
    let mut dice = Dice(27);
    let count = 30 * repeats(1);
    let spawn = |number: usize| json!({"goal": format!("goal {number}"), "max_cost_usd": 1});
    let traces: Vec<TraceId> = (0..count).map(|_| fresh_trace()).collect();
    let mut spawns: Vec<usize> = (0..count * 3).map(|copy| copy % count).collect();
    dice.shuffle(&mut spawns);
    for number in spawns {
        let mut message = spawn(number);
        message["trace_id"] = traces[number].to_string().into();
        publish(&cluster, Subject::Spawn, &message).await;
    }

    let pool: PoolName = "default".parse().unwrap();
    let mut queue = cluster.client.bus.consume(&Consumer::Execute(pool.clone())).await.unwrap();
    let mut said: Vec<(Subject, Value)> = Vec::new();
    for _ in 0..count {
        // One at a time: a delivery that waits here for longer than the ack wait would be
        // redelivered.
        queue.want(1);
        let delivery = tokio::time::timeout(SOON, queue.next()).await.unwrap();
        let offer: Offer = serde_json::from_slice(&delivery.payload).unwrap();
        let (trace_id, token) = (offer.trace_id, fresh_trace().to_string().parse().unwrap());
        let claim = Claim { child_id: root(), worker_id: "by-hand".parse().unwrap(), token };
        let mut leases: Vec<Lease> = Vec::new();
        for _ in 0..3 {
            match ask(&cluster, trace_id, Ask::Claim(claim.clone())).await {
                Answer::Claimed(claimed) => leases.push(claimed.lease),
                other => panic!("{other:?}"),
            }
        }
        assert!(leases.iter().all(|lease| *lease == leases[0]), "all claims with one token got one lease");
        let lease = leases.remove(0);
        let cents = |cents| Amount::new(Usd::from_cents(cents), domain::Tokens::new(10));
        let hold = Hold {
            lease: lease.clone(),
            call_id: "1-1".parse().unwrap(),
            amount: cents(5),
            closing: false,
            seen: None,
        };
        for _ in 0..3 {
            let held = ask(&cluster, trace_id, Ask::Hold(hold.clone())).await;
            assert!(matches!(held, Answer::Done), "{held:?}");
        }
        delivery.ack().await;
        let cost = wire::Cost {
            trace_id,
            lease: lease.clone(),
            call_id: hold.call_id,
            amount: cents(2),
            model: None,
            prices: None,
        };
        let verdict = Verdict::Completed(Payload::Inline(Json::from("done")));
        let report = Report { lease, progress: Progress::default(), verdict };
        let result = wire::Result { trace_id, report };
        for _ in 0..3 {
            said.push((Subject::Cost(pool.clone(), home(trace_id), trace_id, root()), json!(cost)));
            said.push((Subject::Result(pool.clone(), home(trace_id), trace_id, root()), json!(result)));
        }
    }
    for (number, trace_id) in traces.iter().enumerate() {
        for _ in 0..3 {
            let mut again = spawn(number);
            again["trace_id"] = trace_id.to_string().into();
            said.push((Subject::Spawn, again));
            if number % 3 == 0 {
                said.push((Subject::Cancel, json!({"trace_id": trace_id})));
            }
        }
    }
    dice.shuffle(&mut said);
    for (subject, message) in &said {
        publish(&cluster, subject.clone(), message).await;
    }
    cluster.check(&traces).await;
    for (number, trace_id) in traces.iter().enumerate() {
        let outcome = cluster.outcome(*trace_id).await;
        let trace = cluster.client.trace(*trace_id).await;
        let root = trace.root().unwrap();
        assert_eq!(root.budget.spent.cost_usd, Usd::from_cents(2), "booked once");
        assert_eq!(root.attempt(), 1);
        let expected = outcome.context.status == EndStatus::Completed
            || number % 3 == 0 && outcome.context.status == EndStatus::Cancelled;
        assert!(expected, "{outcome:#?}");
    }
}

/// proves: the first committed end stays final, in every status; a cancel before its context is
/// stored (G8); a running agent is stopped.
#[tokio::test(flavor = "multi_thread")]
async fn f33_a_cancel_in_every_status() {
    let mut cluster = Processes::start_as(|| Shape { slots: 8, ..Shape::new(2, 1) }).await;
    let client = cluster.client.clone();
    let is = |run: TraceId, what: &'static str, wanted: fn(&Status) -> bool| {
        let cluster = &cluster;
        async move {
            cluster.until(run, what, |trace| trace.root().is_some_and(|root| wanted(&root.status))).await;
            (what, run)
        }
    };
    use trace::Phase;
    let asking = cluster.begin(json!({"goal": "which?", "agent_id": "ask"})).await;
    let pays = json!({"goal": "p", "agent_id": "spend", "max_cost_usd": 0.02, "on_exhausted": "pause", "inputs": {"calls": 3}});
    let paused = cluster.begin(pays).await;
    let waiting =
        json!({"goal": "grow", "agent_id": "tree", "inputs": {"depth": 2, "width": 2, "leaf": "ask"}});
    let waiting = cluster.begin(waiting).await;
    let steps = json!({"mode": "parallel", "steps": [
        {"id": "a", "agent_id": "ask", "task_description": "a?"},
        {"id": "b", "agent_id": "echo", "task_description": "b"},
    ]});
    let steps = cluster.begin(steps).await;
    let paying = json!({"goal": "p", "agent_id": "spend", "inputs": {"ms": 600_000, "usd": 0.01}});
    let paying = cluster.begin(paying).await;
    let runs = cluster.begin(sleep(600_000)).await;
    super::calling(&cluster, paying, 1).await;
    let mut found = vec![
        is(asking, "input_required", |status| matches!(status, Status::InputRequired { .. })).await,
        is(paused, "paused", |status| matches!(status, Status::Paused { .. })).await,
        is(waiting, "waiting", |status| matches!(status, Status::Working(Phase::Waiting { .. }))).await,
        is(steps, "steps", |status| matches!(status, Status::Working(Phase::Steps))).await,
        is(runs, "running", |status| matches!(status, Status::Working(Phase::Running { .. }))).await,
        ("in a call", paying),
    ];
    let ended = cluster.begin(json!({"goal": "hello"})).await;
    cluster.outcome(ended).await;
    // The retry is far in the future, and no worker runs.
    let retrying = json!({"goal": "f", "agent_id": "fail", "inputs": {"times": 1}});
    let retrying = cluster.begin(retrying).await;
    running(&cluster, retrying, 1).await;
    cluster.kill("w1");
    let submitted = cluster.begin(json!({"goal": "nobody"})).await;
    cluster.until(submitted, "there", |trace| trace.root().is_some()).await;
    found.extend([("retrying", retrying), ("submitted", submitted)]);
    let early = fresh_trace();
    cluster.cancel(early).await;
    for (_, run) in &found {
        cluster.cancel(*run).await;
    }
    cluster.cancel(ended).await;
    cluster.begin_as(early, json!({"goal": "too late"})).await;
    found.push(("not there yet", early));
    for (what, run) in &found {
        let outcome = client.outcome(*run, &root()).await;
        let raced = *what == "retrying" && outcome.context.status == EndStatus::Completed;
        assert!(outcome.context.status == EndStatus::Cancelled || raced, "{what}: {outcome:#?}");
    }
    assert_eq!(cluster.outcome(ended).await.context.status, EndStatus::Completed);
    cluster.run("w1");
    let mut all: Vec<TraceId> = found.iter().map(|(_, run)| *run).collect();
    all.push(ended);
    cluster.check(&all).await;
}

/// proves: the first committed end stays final, in either order of cancel and result.
#[tokio::test(flavor = "multi_thread")]
async fn f33_a_cancel_racing_the_result() {
    let cluster = Processes::start(2, 2).await;
    let mut runs = Vec::new();
    let mut cancelled = 0;
    for number in 0..40 * repeats(1) {
        let paying = json!({"goal": "p", "agent_id": "spend", "inputs": {"ms": 50, "usd": 0.01}});
        let run = cluster.begin(paying).await;
        tokio::time::sleep(Duration::from_millis(number as u64 % 40 * 5)).await;
        cluster.cancel(run).await;
        runs.push(run);
    }
    cluster.check(&runs).await;
    for run in &runs {
        let outcome = cluster.outcome(*run).await;
        cancelled += usize::from(outcome.context.status == EndStatus::Cancelled);
    }
    assert!(cancelled > 0, "no cancel came first");
}

/// A run of one step whose child was claimed. The stored child is changed while no coordinator
/// runs.
async fn changed(cluster: &mut Processes, change: impl Fn(&mut Value)) -> TraceId {
    let steps = json!([{"id": "a", "agent_id": "sleep", "task_description": "z", "input_from": ["ms"]}]);
    let run = cluster.begin(json!({"steps": steps, "inputs": {"ms": 3_000}})).await;
    let claimed = |trace: &Trace| trace.context(&"a".parse().unwrap()).is_some_and(|a| a.attempt() > 0);
    cluster.until(run, "claimed", claimed).await;
    for name in ["c1", "c2"] {
        cluster.kill(name);
    }
    let client = redis::Client::open(cluster.redis.url()).unwrap();
    let mut redis = client.get_multiplexed_async_connection().await.unwrap();
    let keys: Vec<String> = redis::cmd("KEYS").arg(format!("*{run}*")).query_async(&mut redis).await.unwrap();
    let mut changed = 0;
    for key in keys {
        let child: redis::RedisResult<Option<String>> =
            redis::cmd("HGET").arg(&key).arg("d1").query_async(&mut redis).await;
        if let Ok(Some(child)) = child {
            let mut child: Value = serde_json::from_str(&child).unwrap();
            change(&mut child);
            let set = redis::cmd("HSET").arg(&key).arg("d1").arg(child.to_string()).to_owned();
            let () = set.query_async(&mut redis).await.unwrap();
            changed += 1;
        }
    }
    assert_eq!(changed, 1);
    for name in ["c1", "c2"] {
        cluster.run(name);
    }
    run
}

/// proves: a stored run that contradicts itself is rebuilt from its log.
#[tokio::test(flavor = "multi_thread")]
async fn f23_a_stored_run_that_contradicts_itself_is_rebuilt() {
    let mut cluster = Processes::start_as(|| Shape { key: None, ..Shape::new(2, 1) }).await;
    let run = changed(&mut cluster, |child| child[1]["step"]["step"] = json!(77)).await;
    assert_eq!(cluster.outcome(run).await.context.status, EndStatus::Completed);
    cluster.check(&[run]).await;
}

/// proves: a panic in a decision ends no coordinator: its message becomes a dead letter, and other
/// runs continue.
#[tokio::test(flavor = "multi_thread")]
async fn f23_t2_a_message_whose_decision_panics_is_given_up() {
    let mut cluster = Processes::start_as(|| Shape { key: None, ..Shape::new(2, 1) }).await;
    let broken = changed(&mut cluster, |child| child[1]["step"]["ran"] = json!({"item": 3})).await;
    let told = async || {
        let letters = cluster.client.bus.read(&Filter::Dead).await.unwrap_or_default();
        let read = |letter: &StoredMessage| serde_json::from_slice::<Value>(&letter.payload).unwrap();
        letters.iter().map(read).find(|letter| letter["refusal"]["code"] == "internal")
    };
    eventually("the coordinator gives up the result of the child", async || told().await.is_some()).await;
    let letter = told().await.unwrap();
    assert_eq!(letter["trace_id"], json!(broken), "{letter:#}");
    let other = cluster.begin(json!({"goal": "hello"})).await;
    assert_eq!(cluster.outcome(other).await.context.status, EndStatus::Completed);
    for name in ["c1", "c2"] {
        assert!(cluster.is_running(name), "{name} ended");
    }
}
