//! Reads the variables of the worker's environment that the settings name for a server.

#[expect(
    clippy::disallowed_methods,
    reason = "the settings name the variable, so that no file holds its value"
)]
pub(super) fn variable(name: &str) -> Result<String, String> {
    std::env::var(name).map_err(|_| format!("the environment variable {name} is not set, or is not text"))
}
