//! The worker as a service: it takes deliveries, answers calls about itself and health checks.

mod admin;
pub(crate) mod pull;
mod readiness;
