//! The subjects of the tests' messages.

use domain::{PoolName, decode, subject::Subject, wire};
use serde_json::Value;

/// The subject of a query in its wire form.
pub fn query_of(payload: &(impl AsRef<[u8]> + ?Sized)) -> Subject {
    let query = decode::json::<wire::Query>(payload.as_ref()).unwrap_or_else(|problems| panic!("{problems}"));
    Subject::of_query(&query)
}

/// The subject of an administrator's request about a run.
pub fn admin_of(control: &Value) -> Subject {
    let control = decode::value::<wire::Control>(control).unwrap_or_else(|problems| panic!("{problems}"));
    Subject::of_control(&control).pop().expect("it asks for something")
}

/// The default pool of workers.
pub fn pool() -> PoolName {
    PoolName::default_pool()
}
