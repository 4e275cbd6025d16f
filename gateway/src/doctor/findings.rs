//! The findings of the doctor: each has a level, and a hint if something should be done.

use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    Ok,
    /// The credentials do not allow the check.
    NotChecked,
    Warn,
    Fail,
    /// The server could not be reached.
    Unreachable,
}

impl Level {
    /// The level as one word.
    pub fn word(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::NotChecked => "-",
            Level::Warn => "warn",
            Level::Fail | Level::Unreachable => "fail",
        }
    }
}

#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    pub check: &'static str,
    pub level: Level,
    pub found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

#[derive(Debug, Clone, Default, Serialize)]
#[serde(transparent)]
pub struct Findings(pub Vec<Finding>);

impl Findings {
    pub fn add(&mut self, check: &'static str, level: Level, found: impl Into<String>, hint: Option<&str>) {
        self.0.push(Finding { check, level, found: found.into(), hint: hint.map(str::to_owned) });
    }

    pub fn not_checked(&mut self, check: &'static str) {
        self.add(check, Level::NotChecked, "not checked: this role may not ask", None);
    }

    /// True if the check has a finding.
    pub fn has(&self, check: &str) -> bool {
        self.0.iter().any(|finding| finding.check == check)
    }

    /// True if a finding has this level.
    pub fn any(&self, level: Level) -> bool {
        self.0.iter().any(|finding| finding.level == level)
    }
}
