//! Text for people: journal entries, prompts, times and reached limits in words. The command line,
//! the gateway's pages and refusals share these functions, so that everything has one description.
//! This crate makes no decisions.

pub mod human_time;
pub mod journal_text;
pub mod prompt_text;
pub mod set_limit;
