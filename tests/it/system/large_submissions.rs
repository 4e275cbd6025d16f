//! A graph that takes long to compile delays no other submission.

use bus::{Bus, Memory};
use coordinator::store::{self, Store};
use domain::wire::SubmitAnswer;
use futures_util::poll;
use serde_json::{Value, json};
use trellis_tests::cluster::{Cluster, name};

/// Every step reads the outputs of all earlier ones, and the last one also reads a missing key.
/// Compiling it takes more than a thousand times as long as admitting one agent, and none of it is
/// run.
fn heavy() -> Value {
    let key = |n: usize| format!("o{n}");
    let step = |n: usize| {
        let mut reads: Vec<String> = (0..n).map(key).collect();
        reads.extend((n == 499).then(|| "nothing".to_owned()));
        json!({"id": format!("s{n}"), "agent_id": "echo", "task_description": "t", "output_to": key(n), "input_from": reads})
    };
    json!({"mode": "parallel", "steps": (0..500).map(step).collect::<Vec<_>>()})
}

/// proves: submissions after a large one are accepted while it is compiled, by request and by
/// publish.
#[tokio::test(flavor = "multi_thread")]
async fn l_a_large_graph_keeps_no_submission_waiting() {
    let config = coordinator::Config::new(name("coordinator"));
    let store = Store::Memory(store::Memory::new(config.topology.partitions));
    let bus = Bus::Memory(Memory::new(Default::default()));
    let cluster = Cluster::start(bus, store, vec![config], vec![worker::Config::new(name("worker"))]);
    cluster.client.run(json!({"goal": "is anybody there?"})).await;

    let client = cluster.client.clone();
    let mut large = std::pin::pin!(client.submit(heavy()));
    assert!(poll!(&mut large).is_pending(), "the submission is not answered yet");
    let small = cluster.client.run(json!({"goal": "hello"})).await;
    assert!(poll!(&mut large).is_pending(), "{} ended only after the graph was compiled", small.trace_id);
    let SubmitAnswer::Refused(refusal) = large.await else {
        panic!("an input without a writer was accepted")
    };
    assert!(refusal.message.contains("nothing"), "{}", refusal.message);
    cluster.stop().await;
}
