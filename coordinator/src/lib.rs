//! The coordinator: owns budgets, contexts and graphs. What stands is its core, [`trace`], and where it
//! keeps them, the [`store`]; the loop that feeds it from the bus comes next.

pub mod rehearsal;
pub mod store;
pub mod trace;

/// The JSON Schema of every message of the interface, by name.
pub fn schemas() -> Vec<(&'static str, serde_json::Value)> {
    let mut all = shared::schema::all();
    all.push(("event-message", shared::schema::of::<trace::Logged>()));
    all.push(("event", shared::schema::of::<trace::Event>()));
    all
}
