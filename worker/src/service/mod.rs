//! The worker as a service: it takes deliveries, answers admin requests and health checks.

mod admin;
pub(crate) mod pull;
mod readiness;
