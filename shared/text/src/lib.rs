//! Text that people read: journal entries, prompts, times and reached limits in words. The command line, the gateway's pages
//! and refusals use the same functions, so that a thing is described in the same words everywhere. Nothing here decides.

pub mod human_time;
pub mod journal_text;
pub mod prompt_text;
pub mod set_limit;
