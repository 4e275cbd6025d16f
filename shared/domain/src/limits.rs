//! All limits, their defaults, and the derivation of a child's limits from its parent's (section
//! L). Reaching a limit (`>=`) ends an agent with `limit_exceeded` and the limit's name.

use serde::{Deserialize, Deserializer, Serialize};

use crate::{
    money::{Amount, Tokens, Usd},
    problem::Problems,
};

/// The largest message or file that is read. A NATS server's own payload limit may be lower.
pub const MAX_MESSAGE_BYTES: usize = 8 * 1024 * 1024;
/// The largest single value that is sent to a worker: an input, a result of a child, a value of the
/// shared store. It is below [`MAX_MESSAGE_BYTES`], so a message with one such value can be read
/// under any configured limit.
pub const MAX_VALUE_BYTES: u64 = 7 * 1024 * 1024;
/// The most bytes of a context's checks together with those of its ancestors (B16).
pub const MAX_CHECKS_BYTES: u64 = 256 * 1024;
/// The largest order of a context without its inputs and shared messages, and the largest agent
/// profile.
pub const MAX_ORDER_BYTES: u64 = 1024 * 1024;
/// The most bytes of a context's shared messages together (W3).
pub const MAX_SHARED_MESSAGES_BYTES: u64 = 4 * 1024 * 1024;
/// The default for the bytes that one trace stores besides its shared store.
const MAX_TRACE_BYTES: u64 = 256_000_000;
/// The longest goal, question or answer.
pub const MAX_TEXT_BYTES: usize = 64 * 1024;
/// The longest CEL expression; with at most one comprehension, this limits its cost.
pub const MAX_CONDITION_BYTES: usize = 2 * 1024;
/// How deep groups may nest in a graph.
pub const MAX_GROUP_NESTING: usize = 8;
/// The most rounds of a `loop`.
pub const MAX_LOOP_ROUNDS: u32 = 100;
/// The largest JSON Schema given as `output_schema`.
pub const MAX_SCHEMA_BYTES: u64 = 64 * 1024;
/// The longest timeout: a year.
pub const MAX_TIMEOUT_MS: u64 = 366 * 24 * 3600 * 1000;
/// The budget of a root whose submission sets none. It is small on purpose.
pub const DEFAULT_ROOT_BUDGET: Amount = Amount::new(Usd::from_cents(100), Tokens::new(1_000_000_000));

/// The limits in force for one context.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    pub max_steps: u32,
    pub max_retries_total: u32,
    pub max_tokens_per_step: u32,
    pub max_output_files: u32,
    pub max_output_size_bytes: u64,
    /// The timeout of a spawned child that sets none, counted from the start of its first attempt.
    /// 0 means no timeout of its own.
    pub timeout_ms: u64,
    /// The longest wait in the queue for a worker. 0 means no bound.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_queue_ms: u64,
    pub max_depth: u32,
    /// The most live children of one context.
    pub max_children: u32,
    /// The most contexts of one trace over its whole life, including the root.
    pub max_contexts: u32,
    /// The most bytes that one trace stores: orders, plans, messages, answers and results together.
    /// The default is left out of messages, because a program that does not know this field would
    /// reject the limits.
    #[serde(skip_serializing_if = "is_default_of_trace")]
    pub max_trace_bytes: u64,
    pub max_context_value_bytes: u64,
    /// The total size of the shared store of one trace.
    pub max_context_store_bytes: u64,
    /// Larger results are sent by reference.
    pub max_result_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            max_steps: 20,
            max_retries_total: 5,
            max_tokens_per_step: 2_000,
            max_output_files: 10,
            max_output_size_bytes: 1_000_000,
            timeout_ms: 60_000,
            max_queue_ms: 0,
            max_depth: 3,
            max_children: 100,
            max_contexts: 10_000,
            max_trace_bytes: MAX_TRACE_BYTES,
            max_context_value_bytes: 1_000_000,
            max_context_store_bytes: 64_000_000,
            max_result_bytes: 256 * 1024,
        }
    }
}

impl Limits {
    /// Returns a limit by its name.
    pub fn value(&self, name: &str) -> Option<u64> {
        match name {
            "timeout_ms" => Some(self.timeout_ms),
            "max_contexts" => Some(self.max_contexts.into()),
            "max_trace_bytes" => Some(self.max_trace_bytes),
            "max_context_value_bytes" => Some(self.max_context_value_bytes),
            "max_context_store_bytes" => Some(self.max_context_store_bytes),
            _ => LimitOverrides::from(self).value(name),
        }
    }
}

/// The limits that an agent profile or a request sets. The others keep their values.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitOverrides {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_steps: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_retries_total: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens_per_step: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_files: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_size_bytes: Option<u64>,
    /// 0 means no bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_queue_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_depth: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_children: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_result_bytes: Option<u64>,
}

impl LimitOverrides {
    fn is_none(&self) -> bool {
        *self == LimitOverrides::default()
    }

    /// Returns `base` with these limits replaced. An operator's profile does this for a root.
    pub fn replace(&self, base: &Limits) -> Limits {
        self.merge(base, |_, asked| asked, |_, asked| asked)
    }

    /// Returns `base` with the limits that are lower here. A request or a child can only lower
    /// limits.
    pub fn lower(&self, base: &Limits) -> Limits {
        self.merge(base, |had: u32, asked| had.min(asked), |had: u64, asked| had.min(asked))
    }

    /// Returns the requested limits that exceed `limits`: the name, the requested value and the
    /// limit in force.
    pub fn above(&self, limits: &Limits) -> Vec<(&'static str, u64, u64)> {
        let asked = self.named();
        let got = LimitOverrides::from(limits).named();
        let pairs =
            asked.into_iter().zip(got).filter_map(|((name, asked), (_, got))| Some((name, asked?, got?)));
        pairs
            .filter(|(_, asked, got)| asked > got)
            .map(|(name, asked, got)| (name, bound(asked), got))
            .collect()
    }

    /// Returns true if it sets the limit of this name.
    pub fn has(&self, name: &str) -> bool {
        self.named().iter().any(|(known, value)| *known == name && value.is_some())
    }

    /// Returns true if it sets this limit to this value.
    pub fn sets(&self, name: &str, value: u64) -> bool {
        self.named().contains(&(name, Some(value)))
    }

    /// Returns a limit by its name, if it is set.
    pub fn value(&self, name: &str) -> Option<u64> {
        self.named().into_iter().find(|(known, _)| *known == name)?.1.map(bound)
    }

    /// Each limit by its name, as a number; a larger number allows more.
    fn named(&self) -> [(&'static str, Option<u64>); 9] {
        [
            ("max_steps", self.max_steps.map(u64::from)),
            ("max_retries_total", self.max_retries_total.map(u64::from)),
            ("max_tokens_per_step", self.max_tokens_per_step.map(u64::from)),
            ("max_output_files", self.max_output_files.map(u64::from)),
            ("max_output_size_bytes", self.max_output_size_bytes),
            ("max_queue_ms", self.max_queue_ms.map(no_bound)),
            ("max_depth", self.max_depth.map(u64::from)),
            ("max_children", self.max_children.map(u64::from)),
            ("max_result_bytes", self.max_result_bytes),
        ]
    }

    fn merge(&self, base: &Limits, small: fn(u32, u32) -> u32, large: fn(u64, u64) -> u64) -> Limits {
        let small = |had: u32, asked: Option<u32>| asked.map_or(had, |asked| small(had, asked));
        let large = |had: u64, asked: Option<u64>| asked.map_or(had, |asked| large(had, asked));
        Limits {
            max_steps: small(base.max_steps, self.max_steps),
            max_retries_total: small(base.max_retries_total, self.max_retries_total),
            max_tokens_per_step: small(base.max_tokens_per_step, self.max_tokens_per_step),
            max_output_files: small(base.max_output_files, self.max_output_files),
            max_output_size_bytes: large(base.max_output_size_bytes, self.max_output_size_bytes),
            max_queue_ms: bound(large(no_bound(base.max_queue_ms), self.max_queue_ms.map(no_bound))),
            max_depth: small(base.max_depth, self.max_depth),
            max_children: small(base.max_children, self.max_children),
            max_result_bytes: large(base.max_result_bytes, self.max_result_bytes),
            ..*base
        }
    }
}

impl From<&Limits> for LimitOverrides {
    fn from(limits: &Limits) -> Self {
        LimitOverrides {
            max_steps: Some(limits.max_steps),
            max_retries_total: Some(limits.max_retries_total),
            max_tokens_per_step: Some(limits.max_tokens_per_step),
            max_output_files: Some(limits.max_output_files),
            max_output_size_bytes: Some(limits.max_output_size_bytes),
            max_queue_ms: Some(limits.max_queue_ms),
            max_depth: Some(limits.max_depth),
            max_children: Some(limits.max_children),
            max_result_bytes: Some(limits.max_result_bytes),
        }
    }
}

/// Converts a bound where 0 means no bound: 0 becomes `u64::MAX`.
pub fn no_bound(millis: u64) -> u64 {
    if millis == 0 { u64::MAX } else { millis }
}

/// Reverses `no_bound`.
pub fn bound(millis: u64) -> u64 {
    if millis == u64::MAX { 0 } else { millis }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_default_of_trace(number: &u64) -> bool {
    *number == MAX_TRACE_BYTES
}

/// Upper bounds for roots, and thereby for all contexts beneath them. An absent field sets no
/// bound.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Maximum {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cost_usd: Option<Usd>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<Tokens>,
    /// Real time since the submission.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Bounds for the limits that profiles set. Without a profile, the deployment's own limits
    /// apply.
    #[serde(skip_serializing_if = "LimitOverrides::is_none")]
    pub limits: LimitOverrides,
}

impl Maximum {
    fn is_none(&self) -> bool {
        *self == Maximum::default()
    }

    pub fn ceiling(&self) -> Amount {
        Amount::new(self.max_cost_usd.unwrap_or(Usd::MAX), self.max_tokens.unwrap_or(Tokens::MAX))
    }
}

/// The settings of a deployment for every trace it admits. A trace keeps the copy that it was
/// admitted with, so that replaying its events gives the same state under any later configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    pub limits: Limits,
    /// The budget of a root that sets no ceiling.
    #[serde(deserialize_with = "root_budget")]
    pub root_budget: Amount,
    /// The upper bounds of a root. They apply to all submissions and agent profiles (B17).
    #[serde(skip_serializing_if = "Maximum::is_none")]
    pub maximum: Maximum,
    /// The duration of a lease without a tick.
    pub lease_ms: u64,
    /// The time after a context's end in which its open calls may still be settled. Then their
    /// holds are booked as spent.
    pub hold_grace_ms: u64,
    /// The delay before the first retry of a failed attempt. It doubles with each retry, up to
    /// `retry_max_ms`.
    pub retry_base_ms: u64,
    pub retry_max_ms: u64,
    /// The longest time that work waits unclaimed in the queue. Then it is sent again, because it
    /// may be lost.
    pub redispatch_ms: u64,
}

/// Reads a root budget. A field that is left out keeps its default: with zero, no call could be
/// paid.
fn root_budget<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Amount, D::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Given {
        cost_usd: Option<Usd>,
        tokens: Option<Tokens>,
    }
    let Given { cost_usd, tokens } = Given::deserialize(deserializer)?;
    let default = DEFAULT_ROOT_BUDGET;
    Ok(Amount::new(cost_usd.unwrap_or(default.cost_usd), tokens.unwrap_or(default.tokens)))
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            limits: Limits::default(),
            root_budget: DEFAULT_ROOT_BUDGET,
            maximum: Maximum::default(),
            lease_ms: 10_000,
            hold_grace_ms: 13_000,
            retry_base_ms: 500,
            retry_max_ms: 30_000,
            redispatch_ms: 900_000,
        }
    }
}

/// The ceilings that a request, a step or a profile sets.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ceilings {
    pub max_cost_usd: Option<Usd>,
    pub max_tokens: Option<Tokens>,
    pub closing_reserve_usd: Option<Usd>,
    pub timeout_ms: Option<u64>,
}

/// Adds the problems of the ceilings at `path`.
pub fn check_ceilings(path: &str, ceilings: Ceilings, problems: &mut Problems) {
    let at = |field: &str| if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") };
    let nothing = [
        ("max_cost_usd", ceilings.max_cost_usd == Some(Usd::ZERO)),
        ("max_tokens", ceilings.max_tokens == Some(Tokens::ZERO)),
    ];
    for (field, _) in nothing.into_iter().filter(|(_, zero)| *zero) {
        let hint = "a budget of zero is used up before it begins; a small positive ceiling is enough for free models";
        problems.add(at(field), "a ceiling must be more than zero", Some(hint.into()));
    }
    if let (Some(reserve), Some(limit)) = (ceilings.closing_reserve_usd, ceilings.max_cost_usd)
        && reserve >= limit
    {
        let hint = "the reserve is a part of the ceiling: make it smaller, or raise `max_cost_usd`";
        problems.add(
            at("closing_reserve_usd"),
            format!("a reserve of {reserve} leaves nothing of {limit}"),
            Some(hint.into()),
        );
    }
    if ceilings.timeout_ms.is_some_and(|timeout| timeout > MAX_TIMEOUT_MS) {
        problems.add(at("timeout_ms"), format!("a timeout is at most a year ({MAX_TIMEOUT_MS} ms)"), None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l_a_part_of_the_root_budget_that_is_left_out_is_not_zero() {
        for (given, expected) in [
            (
                r#"{"root_budget": {"cost_usd": 5}}"#,
                Amount::new(Usd::from_cents(500), DEFAULT_ROOT_BUDGET.tokens),
            ),
            (r#"{"root_budget": {"tokens": 0}}"#, Amount::new(DEFAULT_ROOT_BUDGET.cost_usd, Tokens::ZERO)),
            ("{}", DEFAULT_ROOT_BUDGET),
        ] {
            let settings: Settings = serde_json::from_str(given).expect("settings");
            assert_eq!(settings.root_budget, expected, "{given}");
        }
    }

    #[test]
    fn l_a_request_may_only_lower_and_a_profile_may_set() {
        let base = Limits::default();
        let asked = LimitOverrides { max_steps: Some(50), max_children: Some(5), ..Default::default() };
        let lowered = asked.lower(&base);
        assert_eq!((lowered.max_steps, lowered.max_children), (20, 5));
        let replaced = asked.replace(&base);
        assert_eq!((replaced.max_steps, replaced.max_children), (50, 5));
        assert_eq!(replaced.max_depth, 3);
    }

    #[test]
    fn l_no_bound_of_the_wait_for_a_worker_is_more_than_any() {
        let queue = |max_queue_ms| LimitOverrides { max_queue_ms, ..Default::default() };
        let base = |max_queue_ms| Limits { max_queue_ms, ..Default::default() };
        for (had, asked, lowered, replaced) in [
            (0, None, 0, 0),
            (0, Some(5), 5, 5),
            (5, Some(0), 5, 0),
            (5, Some(7), 5, 7),
            (5, Some(3), 3, 3),
            (5, None, 5, 5),
        ] {
            assert_eq!(queue(asked).lower(&base(had)).max_queue_ms, lowered, "{had} {asked:?}");
            assert_eq!(queue(asked).replace(&base(had)).max_queue_ms, replaced, "{had} {asked:?}");
        }
    }

    #[test]
    fn l_the_defaults_are_those_of_the_specification() {
        let limits = Limits::default();
        assert_eq!((limits.max_steps, limits.max_tokens_per_step), (20, 2000));
        assert_eq!((limits.max_output_files, limits.max_output_size_bytes), (10, 1_000_000));
        assert_eq!((limits.timeout_ms, limits.max_depth), (60_000, 3));
        assert_eq!((limits.max_children, limits.max_contexts), (100, 10_000));
        assert_eq!((limits.max_context_value_bytes, limits.max_result_bytes), (1_000_000, 262_144));
        assert_eq!(limits.max_trace_bytes, 256_000_000);
    }
}
