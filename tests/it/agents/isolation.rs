//! Isolation of LLM agents (seed 001, T1 and T2): a child's prompt and workspace contain nothing of
//! its parent, and the reverse. Only the goal goes to the child, and only the result to the parent.

use domain::subject::Filter;
use serde_json::{Value, json};
use trellis_tests::servers::{ModelServer, Prompt};

use super::{agent, call, cluster, finished, say};

const PARENTS: &str = "parent-marker-7f3a";
const CHILDS: &str = "child-marker-9c1e";

/// Parent and child each write their own marker to every place that an agent can write to.
fn marked(prompt: &Prompt) -> trellis_tests::servers::Reply {
    let is_parent = prompt.task().starts_with("lead");
    let own = if is_parent { PARENTS } else { CHILDS };
    match (prompt.turn(), is_parent) {
        (0, _) => {
            let content = format!("{own} in a file\n{}", format!("{own} in a large output\n").repeat(200));
            call("fs_write", json!({"path": format!("outputs/{own}.txt"), "content": content}))
        }
        (1, _) => call("fs_read", json!({"path": format!("outputs/{own}.txt")})),
        (2, true) => call("spawn", json!({"goal": "follow up on it", "agent_id": "follower"})),
        (2, false) => call("fs_list", json!({"path": "outputs"})),
        (3, true) => call("fs_list", json!({"path": "outputs"})),
        _ => say(if is_parent { "led" } else { "followed" }),
    }
}

fn of_task<'a>(prompts: &'a [Value], task: &str) -> Vec<&'a Value> {
    prompts.iter().filter(|prompt| prompt.to_string().contains(&format!("Your task: {task}"))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn i1_i2_nothing_of_a_parents_is_in_its_childs_prompts_and_the_other_way_round() {
    let model = ModelServer::start(marked).await;
    let mut leader = agent("leader");
    leader["system_prompt"] = json!(format!("You lead. {PARENTS} in the role."));
    let mut follower = agent("follower");
    follower["system_prompt"] = json!(format!("You follow. {CHILDS} in the role."));
    let cluster = cluster(2, &model, json!([leader, follower])).await;
    let inputs = json!({"secret": format!("{PARENTS} in an input")});
    let run = cluster.begin(json!({"goal": "lead the way", "agent_id": "leader", "inputs": inputs})).await;
    let (outcome, _) = finished(&cluster, run).await;
    assert_eq!(outcome["result"], "led", "{outcome:#}");
    let prompts = model.prompts();
    let (parents, childs) = (of_task(&prompts, "lead"), of_task(&prompts, "follow"));
    assert_eq!((parents.len(), childs.len()), (5, 4));
    for prompt in &parents {
        assert!(prompt.to_string().contains(PARENTS) && !prompt.to_string().contains(CHILDS), "{prompt:#}");
    }
    for prompt in &childs {
        assert!(prompt.to_string().contains(CHILDS) && !prompt.to_string().contains(PARENTS), "{prompt:#}");
    }
    // I1: the child begins with its role and one message: its task.
    let first = childs.iter().find(|prompt| prompt["messages"].as_array().unwrap().len() == 2).unwrap();
    let said: Vec<&str> = first["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["role"].as_str().unwrap())
        .collect();
    assert_eq!(said, ["system", "user"]);
    assert_eq!(first["messages"][1]["content"], "Your task: follow up on it");
    // Neither marker is in the other's journal, nor in the coordinator's state and messages.
    for stored in cluster.client.bus.read(&Filter::HistoriesOf(run)).await.unwrap() {
        let text = String::from_utf8_lossy(&stored.payload).into_owned();
        let other = if stored.subject.to_string().ends_with(".root") { CHILDS } else { PARENTS };
        assert!(!text.contains(other), "{}: {text}", stored.subject);
    }
    let outcome = outcome.to_string();
    assert!(!outcome.contains(CHILDS), "{outcome}");
}

/// W3: only the categories that the spawn names are copied, once.
#[tokio::test(flavor = "multi_thread")]
async fn w3_a_share_copies_the_role_and_the_inputs_and_no_dialog() {
    let model = ModelServer::start(|prompt: &Prompt| match (prompt.task().as_str(), prompt.turn()) {
        ("lead", 0) => call("fs_write", json!({"path": "outputs/x", "content": "a dialog-marker"})),
        ("lead", 1) => {
            call("spawn", json!({"goal": "follow", "agent_id": "follower", "share": ["system", "context"]}))
        }
        _ => say("done"),
    })
    .await;
    let mut leader = agent("leader");
    leader["system_prompt"] = json!("A role-marker.");
    let cluster = cluster(1, &model, json!([leader, agent("follower")])).await;
    let inputs = json!({"given": "an input-marker"});
    let run = cluster.begin(json!({"goal": "lead", "agent_id": "leader", "inputs": inputs})).await;
    finished(&cluster, run).await;
    let prompts = model.prompts();
    let [child] = of_task(&prompts, "follow")[..] else { panic!("not exactly one prompt: {prompts:#?}") };
    let text = child.to_string();
    assert!(text.contains("role-marker") && text.contains("input-marker"), "{child:#}");
    assert!(!text.contains("dialog-marker") && !text.contains("Your task: lead"), "{child:#}");
}

/// I5: a child has no tool that its parent lacks, regardless of its prompt and its calls.
#[tokio::test(flavor = "multi_thread")]
async fn i5_a_tool_outside_the_set_is_refused_at_the_call() {
    let model = ModelServer::start(|prompt: &Prompt| match prompt.turn() {
        0 => call("fs.write", json!({"path": "outputs/x", "content": "x"})),
        _ => say(&prompt.last()),
    })
    .await;
    let mut reader = agent("reader");
    reader["tools"] = json!(["fs.read"]);
    let cluster = cluster(1, &model, json!([reader])).await;
    let run = cluster.begin(json!({"goal": "x", "agent_id": "reader"})).await;
    let (outcome, _) = finished(&cluster, run).await;
    let said = outcome["result"].as_str().unwrap();
    assert!(said.starts_with("error: `fs.write` is not among the tools"), "{said}");
    let offered = model.prompts()[0]["tools"].to_string();
    assert!(offered.contains("fs_read") && !offered.contains("fs_write"), "{offered}");
}
