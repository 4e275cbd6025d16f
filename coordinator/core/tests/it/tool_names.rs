//! A misspelt tool is refused where it is named, with the nearest known one (P).

use serde_json::{Value, json};
use trace::Refusal;
use world::World;

fn text<T: std::fmt::Debug>(refused: Result<T, Refusal>) -> String {
    refused.unwrap_err().to_wire().to_text()
}

#[test]
fn p_a_misspelt_tool_is_refused_with_the_nearest_name() {
    let root = |tools: Value| json!({"goal": "g", "child_id": "root", "tools": tools});
    let mut world = World::new();
    let refused = text(world.submit(root(json!(["fs.raed", "fs.write", "web:search"]))));
    assert!(refused.contains("there is no tool `fs.raed`") && refused.contains("`fs.read`?"), "{refused}");
    assert!(!refused.contains("web:search"), "a tool of an MCP server was refused: {refused}");
    world.submit(root(json!(["fs.read", "spawn", "run_pipeline", "web:search"]))).unwrap();
    let lease = world.claim("root");
    let child = json!({"goal": "c", "child_id": "child", "tools": ["fs.red"]});
    let refused = text(world.spawn(&lease, child));
    assert!(refused.contains("`fs.read`?"), "a spawn: {refused}");
    let step =
        |tools: Value| json!({"id": "one", "agent_id": "default", "task_description": "t", "tools": tools});
    let graph = json!({"name": "p", "steps": [step(json!(["ask_humen"]))]});
    let refused = text(world.spawn_graph(&lease, graph.clone()));
    assert!(refused.contains("steps[0].tools") && refused.contains("`ask_human`?"), "{refused}");
    let refused = text(World::new().submit_graph(graph));
    assert!(refused.contains("steps[0].tools"), "a graph: {refused}");
}
