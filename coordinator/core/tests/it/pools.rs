//! Only workers of its pool act for a context. The pool's name is in the subject on which they send
//! (S6).

use domain::{
    PoolName,
    check::{CheckDecision, Moment},
    decode,
    wire::{
        self, CheckReport, Claim, Failure, Hold, Lease, Progress, Raise, Report, Resume, SettledCall, Tick,
        Verdict,
    },
};
use serde_json::{Value, json};
use trace::{Command, ContextSpec, Refusal, Spawn};
use world::{World, cents, home, id};

fn gpu() -> PoolName {
    "gpu".parse().unwrap()
}

/// A world whose agent `painter` runs in the pool `gpu`; all others run in the default pool.
fn world() -> World {
    let mut world = World::new();
    world.agent(json!({"agent_id": "painter", "pool": "gpu"}));
    world
}

fn begun(agent: &str, terms: Value) -> World {
    let mut world = world();
    let spawn = json!({"goal": "g", "child_id": "root", "agent_id": agent, "max_cost_usd": 10});
    world.submit(world::with(spawn, terms)).unwrap();
    world
}

fn claim(child: &str, token: &str) -> Command {
    let token = token.parse().unwrap();
    Command::Claim(Claim { child_id: id(child), worker_id: "thief".parse().unwrap(), token })
}

/// Every command that a worker can send about a context.
fn sayings(lease: &Lease) -> Vec<Command> {
    let lease = || lease.clone();
    let call = || "call".parse().unwrap();
    let spawn: wire::Spawn = decode::value(&json!({"goal": "g", "child_id": "stolen"})).unwrap();
    let spec = ContextSpec::from_spawn(&spawn, &[], &id("stolen")).unwrap();
    let agents = vec![domain::AgentProfile::builtin("default".parse().unwrap(), "echo")];
    let report = |verdict| {
        Command::Report(Box::new(Report { lease: lease(), progress: Progress::default(), verdict }))
    };
    let hold =
        Hold { lease: lease(), call_id: call(), amount: cents(1), closing: false, seen: Default::default() };
    let settled = vec![SettledCall { call_id: "earlier".parse().unwrap(), amount: cents(5), model: None }];
    vec![
        claim(lease().child_id.as_str(), "fresh"),
        Command::Tick(Tick { lease: lease(), progress: Progress { steps: 1, ..Progress::default() } }),
        Command::Hold(hold),
        Command::Settle { lease: lease(), call_id: "unheld".parse().unwrap(), amount: cents(7), model: None },
        Command::Release { lease: lease(), call_id: call() },
        Command::Forfeit { lease: lease(), call_id: call() },
        Command::Resume(Resume { lease: lease(), settled }),
        Command::Spawn(Box::new(Spawn { lease: lease(), spec, plan: None, agents: agents.into() })),
        Command::SetValue {
            lease: lease(),
            key: format!("{}.k", lease().child_id).parse().unwrap(),
            value: json!(1).into(),
        },
        Command::DeleteValue { lease: lease(), key: format!("{}.k", lease().child_id).parse().unwrap() },
        Command::Checked(CheckReport {
            lease: lease(),
            number: 1,
            check: "secrets".parse().unwrap(),
            moment: Moment::BeforeCall,
            decision: CheckDecision::Deny,
            reason: None,
        }),
        report(Verdict::Failed(Failure::retryable("no"))),
        report(Verdict::HandedBack),
    ]
}

/// Checks the refusal. `World::handle` compares the whole trace before and after it.
fn refused(world: &mut World, command: Command, from: PoolName) {
    let shown = format!("{command:?}");
    let refusal = world.handle(command.from_pool(from.clone())).unwrap_err();
    assert!(matches!(&refusal, Refusal::OtherPool { pool, .. } if *pool == from), "{shown}: {refusal}");
    assert_eq!(refusal.to_wire().code, "other_pool");
}

#[test]
fn s6_a_worker_speaks_only_for_contexts_of_its_pool() {
    for (agent, own, other) in
        [("default", PoolName::default_pool(), gpu()), ("painter", gpu(), PoolName::default_pool())]
    {
        let mut world = begun(agent, json!({}));
        refused(&mut world, claim("root", "t"), other.clone());
        assert_eq!(world.status("root"), "submitted");
        let lease = world.claim("root");
        for saying in sayings(&lease) {
            refused(&mut world, saying, other.clone());
        }
        assert_eq!(world.node("root").budget.spent, cents(0));
        // The same command from the right pool: it may be refused, but not because of the pool.
        for saying in sayings(&lease) {
            let decided = world.clone().handle(saying.from_pool(own.clone()));
            assert!(!matches!(decided, Err(Refusal::OtherPool { .. })), "{decided:?}");
        }
        // Reads are checked as well.
        assert!(world.trace.check_pool(&other, &id("root")).is_err());
        world.trace.check_pool(&own, &id("root")).unwrap();
        world.check_replay();
    }
}

#[test]
fn s6_work_is_published_to_the_pool_that_may_ask_about_it() {
    let world = begun("painter", json!({}));
    let (to, offer) = world.trace.offer(&id("root"), &home()).unwrap();
    assert_eq!((to, offer.report_to.ask.as_str()), (gpu(), "agent.ask.gpu.p00"));
    let report_to = world.work(&id("root")).unwrap().report_to;
    let trace = world.trace.id();
    assert_eq!(report_to.ask, "agent.ask.gpu.p00");
    assert_eq!(report_to.result, format!("agent.result.gpu.p00.{trace}.root"));
    assert_eq!(report_to.cost, format!("agent.cost.gpu.p00.{trace}.root"));
}

/// A child runs in the pool of its own agent. The parent's workers can't act for the child, nor the
/// child's workers for the parent.
#[test]
fn s6_a_child_in_another_pool_is_asked_about_by_that_pool() {
    let mut world = begun("default", json!({}));
    let root = world.claim("root");
    let spawned = world.spawn(&root, json!({"goal": "paint", "child_id": "p", "agent_id": "painter"}));
    spawned.unwrap();
    let painter = world.claim("p");
    for saying in sayings(&painter) {
        refused(&mut world, saying, PoolName::default_pool());
    }
    for saying in sayings(&root) {
        refused(&mut world, saying, gpu());
    }
    // The parent waits for the child without a worker, and continues in its own pool.
    world.wait(&root, &["p"]).unwrap();
    world.complete(&painter, "painted").unwrap();
    refused(&mut world, claim("root", "t"), gpu());
    world.handle(claim("root", "u").from_pool(PoolName::default_pool())).unwrap();
}

/// The pool of a context comes from the profile that its trace keeps. Later changes do not affect
/// it.
#[test]
fn s6_a_pool_holds_through_retries_humans_restores_and_deletion() {
    let mut world = begun("painter", json!({}));
    let first = world.claim("root");
    world.fail(&first, true).unwrap();
    world.pass(10_000);
    refused(&mut world, claim("root", "t1"), PoolName::default_pool());
    // The profile was applied again with another pool; a running context keeps its pool.
    world.agent(json!({"agent_id": "painter", "pool": "other"}));
    refused(&mut world, claim("root", "t2"), "other".parse().unwrap());
    let second = world.claim("root");
    world.ask_human(&second, "Which colour?").unwrap();
    world.answer("root", 1, "blue").unwrap();
    refused(&mut world, claim("root", "t3"), PoolName::default_pool());
    world.claim("root");
    let restore = wire::Restore { child_id: id("root"), number: 1, to: 0 };
    world.handle(Command::Restore(restore)).unwrap();
    refused(&mut world, claim("root", "t4"), PoolName::default_pool());
    let fourth = world.claim("root");
    world.hold(&fourth, "call", cents(10)).unwrap();
    world.delete(None, true).unwrap();
    // A late cost is still booked from the right pool, and from no other.
    let late = || Command::Settle {
        lease: fourth.clone(),
        call_id: "call".parse().unwrap(),
        amount: cents(3),
        model: None,
    };
    refused(&mut world, late(), PoolName::default_pool());
    world.handle(late().from_pool(gpu())).unwrap();
    assert_eq!(world.spent_cents("root"), 3);
    world.check_replay();
}

/// A graph's own agent writes its synthesis in its pool; steps run in the pools of their agents.
#[test]
fn s6_steps_and_synthesis_of_a_graph_have_the_pools_of_their_agents() {
    let mut world = world();
    let graph = json!({"name": "g", "mode": "parallel", "agent_id": "painter", "task_description": "Report.",
        "aggregate": {}, "steps": [
            {"id": "a", "agent_id": "writer", "task_description": "one"},
            {"id": "b", "agent_id": "painter", "task_description": "two"}]});
    world.submit_graph(graph).unwrap();
    let queued = world.queued();
    let [a, b] = queued.as_slice() else { panic!("{queued:?}") };
    refused(&mut world, claim(a.as_str(), "t"), gpu());
    refused(&mut world, claim(b.as_str(), "t"), PoolName::default_pool());
    world.run(a.as_str(), "1");
    world.run(b.as_str(), "2");
    let root = world.queued();
    refused(&mut world, claim(root[0].as_str(), "t"), PoolName::default_pool());
    world.handle(claim(root[0].as_str(), "u").from_pool(gpu())).unwrap();
}

/// Commands reserved for clients and administrators are refused from any pool.
#[test]
fn s6_only_messages_of_workers_are_accepted_from_a_pool() {
    let mut world = begun("default", json!({}));
    let raise =
        Raise { child_id: id("root"), max_cost_usd: Some(domain::Usd::from_cents(10_000)), max_tokens: None };
    let cancel = Command::Cancel { child_id: None, reason: None, without_undo: false };
    for command in [Command::Raise(raise), cancel, Command::Wake] {
        let refusal = world.handle(command.from_pool(PoolName::default_pool())).unwrap_err();
        assert_eq!(refusal.to_wire().code, "not_of_workers");
    }
}

/// A stolen worker of one pool must not use the programs and logins of another pool by spawning its
/// agents.
#[test]
fn s6_an_agent_is_spawned_only_from_the_pools_that_its_profile_names() {
    let graph = |agent: &str| {
        json!({"child_id": "g", "steps": [{"id": "a", "agent_id": "writer", "task_description": "t",
            "fallback": {"agent_id": agent}}]})
    };
    for (caller, may) in [("default", false), ("painter", true)] {
        let mut world = begun(caller, json!({}));
        world.agent(json!({"agent_id": "deployer", "pool": "prod", "spawned_from": ["gpu", "prod"]}));
        let lease = world.claim("root");
        let by_name = world.spawn(&lease, json!({"goal": "g", "child_id": "d", "agent_id": "deployer"}));
        let in_a_graph = world.spawn_graph(&lease, graph("deployer"));
        for asked in [by_name, in_a_graph] {
            match asked {
                Ok(_) => assert!(may, "{caller}"),
                Err(refusal) => {
                    assert_eq!(
                        (refusal.to_wire().code.as_str(), may),
                        ("not_spawned_from", false),
                        "{refusal}"
                    )
                }
            }
        }
    }
    // A client may name any agent.
    let mut world = world();
    world.agent(json!({"agent_id": "deployer", "pool": "prod", "spawned_from": ["prod"]}));
    world.submit(json!({"goal": "g", "child_id": "root", "agent_id": "deployer"})).unwrap();
    let mut world = self::world();
    world.agent(json!({"agent_id": "deployer", "pool": "prod", "spawned_from": ["prod"]}));
    world.submit_graph(graph("deployer")).unwrap();
}
