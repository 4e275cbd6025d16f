//! A CEL expression of a graph: `when` or `until`. At submission it is checked for the values that
//! it reads and for its cost. Later it is evaluated on exactly those values. It has no side effects
//! and no clock.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    sync::Arc,
};

use cel::{Context, ExecutionError, Value as CelValue, common::ast::IdedExpr, parser::PrattParser};
use serde_json::{Map, Value, json};

use super::expression_limits::{MAX_DEPTH, Reads, VARIABLES, check};
use crate::{limits::MAX_CONDITION_BYTES, problem::Problems};

/// The most bytes of the shared store that one expression may read.
const MAX_READ_BYTES: usize = 256 * 1024;

/// A checked expression. Two expressions are equal if their sources are.
#[derive(Clone)]
pub struct Condition {
    source: Arc<str>,
    expression: Arc<IdedExpr>,
    reads: Reads,
}

/// The values that an expression may read, by name; `None` for a value that does not exist yet.
pub trait Scope {
    fn output(&self, key: &str) -> Option<Value>;
    fn step(&self, id: &str) -> Option<Value>;
    fn budget(&self) -> Value;
}

/// Sample values for an expression: every step has succeeded, and no output is written.
struct Sample;

impl Scope for Sample {
    fn output(&self, _: &str) -> Option<Value> {
        None
    }

    fn step(&self, _: &str) -> Option<Value> {
        Some(json!({"status": "succeeded", "cost_usd": 0.5, "tokens": 1, "attempts": 1}))
    }

    fn budget(&self) -> Value {
        json!({"limit_usd": 1.5, "spent_usd": 0.5, "remaining_usd": 1.0,
            "limit_tokens": 3, "spent_tokens": 1, "remaining_tokens": 2})
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EvaluationError {
    /// It reads an output or field that does not exist. `has(…)` checks for that.
    #[error("it reads `{0}`, which does not exist")]
    Absent(String),
    #[error("{0}")]
    Failed(String),
    #[error("it gives {0}, not true or false")]
    NotBoolean(String),
}

impl Condition {
    pub fn compile(source: &str, path: &str) -> Result<Self, Problems> {
        if source.len() > MAX_CONDITION_BYTES {
            let message = format!(
                "the expression has {} bytes, more than the {MAX_CONDITION_BYTES} allowed",
                source.len()
            );
            return Err(Problems::one(path, message, None));
        }
        let parser =
            PrattParser::new().max_recursion_depth(u16::try_from(MAX_DEPTH).expect("a small literal"));
        let expression = parser.parse(source).map_err(|errors| {
            let first = errors.to_string().lines().next().unwrap_or("it can't be parsed").to_owned();
            let hint =
                "conditions are CEL, such as `outputs.review.score > 0.5 && budget.remaining_usd > 0.10`";
            Problems::one(path, format!("not a CEL expression: {first}"), Some(hint.into()))
        })?;
        let reads = check(&expression, path)?;
        Ok(Condition { source: source.into(), expression: Arc::new(expression), reads })
    }

    /// Returns the reason why the expression fails on any outputs: its result is not a boolean, or
    /// it reads no values and fails.
    pub fn mistake(&self) -> Option<String> {
        let is_constant =
            self.reads.outputs.is_empty() && self.reads.steps.is_empty() && !self.source.contains("budget");
        match self.evaluate(&Sample).0 {
            Err(error @ EvaluationError::NotBoolean(_)) => Some(error.to_string()),
            Err(EvaluationError::Failed(why)) if is_constant => Some(format!("it always fails: {why}")),
            Ok(_) | Err(EvaluationError::Absent(_) | EvaluationError::Failed(_)) => None,
        }
    }

    pub fn source(&self) -> &str {
        &self.source
    }

    /// Returns the keys of the shared store that it reads.
    pub fn outputs(&self) -> impl Iterator<Item = &str> {
        self.reads.outputs.iter().map(String::as_str)
    }

    /// Returns the steps that it reads.
    pub fn steps(&self) -> impl Iterator<Item = &str> {
        self.reads.steps.iter().map(String::as_str)
    }

    /// Returns the result, and the values that were read for it.
    pub fn evaluate(&self, scope: &dyn Scope) -> (Result<bool, EvaluationError>, Value) {
        let collect =
            |names: &BTreeSet<String>, find: &dyn Fn(&str) -> Option<Value>| -> Map<String, Value> {
                names.iter().filter_map(|name| Some((name.clone(), find(name)?))).collect()
            };
        let saw = json!({
            "outputs": collect(&self.reads.outputs, &|key| scope.output(key)),
            "steps": collect(&self.reads.steps, &|id| scope.step(id)),
            "budget": scope.budget(),
        });
        (self.run(&saw), saw)
    }

    fn run(&self, saw: &Value) -> Result<bool, EvaluationError> {
        let read = saw["outputs"].to_string().len();
        if read > MAX_READ_BYTES {
            let message =
                format!("the outputs it reads have {read} bytes, more than the {MAX_READ_BYTES} it may read");
            return Err(EvaluationError::Failed(message));
        }
        let mut context = Context::default();
        for name in VARIABLES {
            context.add_variable_from_value(name, to_cel(&saw[name]));
        }
        match context.resolve(&self.expression) {
            Ok(CelValue::Bool(answer)) => Ok(answer),
            Ok(other) => Err(EvaluationError::NotBoolean(format!("{:?}", other.type_of()).to_lowercase())),
            Err(ExecutionError::NoSuchKey(key)) => Err(EvaluationError::Absent(key.to_string())),
            Err(error) => Err(EvaluationError::Failed(error.to_string())),
        }
    }
}

/// Converts JSON to CEL values. Whole numbers become `int`, the type of an expression's literals.
/// CEL can't add `uint` and `int`.
fn to_cel(value: &Value) -> CelValue {
    match value {
        Value::Null => CelValue::Null,
        Value::Bool(truth) => CelValue::Bool(*truth),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(whole), _) => CelValue::Int(whole),
            (None, Some(whole)) => CelValue::UInt(whole),
            (None, None) => CelValue::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => CelValue::String(Arc::new(text.clone())),
        Value::Array(list) => CelValue::List(Arc::new(list.iter().map(to_cel).collect())),
        Value::Object(fields) => {
            let fields: HashMap<String, CelValue> =
                fields.iter().map(|(key, value)| (key.clone(), to_cel(value))).collect();
            CelValue::from(fields)
        }
    }
}

impl PartialEq for Condition {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Condition({:?})", self.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct SampleScope;
    impl Scope for SampleScope {
        fn output(&self, key: &str) -> Option<Value> {
            match key {
                "review" => Some(serde_json::json!({"score": 0.7, "tags": ["a", "b"]})),
                "nothing" => Some(Value::Null),
                _ => None,
            }
        }
        fn step(&self, id: &str) -> Option<Value> {
            (id == "my-step").then(|| serde_json::json!({"status": "succeeded"}))
        }
        fn budget(&self) -> Value {
            serde_json::json!({"remaining_usd": 0.25, "spent_tokens": 7})
        }
    }

    #[test]
    fn g3_conditions_are_cel_over_outputs_steps_and_budget() {
        let cases = [
            ("outputs.review.score > 0.5", Ok(true)),
            ("outputs[\"review\"].score > 0.9", Ok(false)),
            ("budget.remaining_usd > 0.10 && budget.spent_tokens < 8", Ok(true)),
            ("steps[\"my-step\"].status == \"succeeded\"", Ok(true)),
            ("has(outputs.missing)", Ok(false)),
            ("has(outputs.review)", Ok(true)),
            ("outputs.nothing == null", Ok(true)),
            ("outputs.review.tags.exists(t, t == \"b\")", Ok(true)),
            ("size(outputs.review.tags) == 2 ? true : false", Ok(true)),
            ("budget.spent_tokens + 1 == 8 && budget.spent_tokens % 2 == 1", Ok(true)),
            ("int(\"3\") == 3 && double(\"0.5\") < 1.0 && string(7) == \"7\" && uint(3) == 3u", Ok(true)),
            ("\"abc\".startsWith(\"a\") && \"abc\".endsWith(\"c\") && \"abc\".contains(\"b\")", Ok(true)),
            ("size(bytes(\"abc\")) == 3 && bool(\"true\")", Ok(true)),
            ("\"b\" in outputs.review.tags", Ok(true)),
            ("outputs.missing > 1", Err(EvaluationError::Absent("missing".into()))),
            ("outputs.review.score", Err(EvaluationError::NotBoolean("float".into()))),
        ];
        for (source, expected) in cases {
            let condition = Condition::compile(source, "when").unwrap_or_else(|e| panic!("{source}: {e}"));
            assert_eq!(condition.evaluate(&SampleScope).0, expected, "{source}");
        }
        let failing = Condition::compile("outputs.review > 3", "when").unwrap();
        assert!(matches!(failing.evaluate(&SampleScope).0, Err(EvaluationError::Failed(_))));
    }

    #[test]
    fn g2_bad_conditions_are_refused_at_submission() {
        let deep =
            |open: &str, close: &str, times: usize| format!("{}1{}", open.repeat(times), close.repeat(times));
        let long = format!("true || {}", "true || ".repeat(300));
        let cases = [
            ("output.review > 1", "unknown variable `output`"),
            ("outputs.a > 1 && secret", "unknown variable `secret`"),
            ("size(outputs) > 1", "reads the whole of `outputs`"),
            ("outputs[steps.a.status]", "reads the whole of `outputs`"),
            ("budget.left > 1", "`budget` has no field `left`"),
            ("steps.a.state == 'failed'", "a step has no field `state`"),
            ("steps['a-b'].status == 'completed'", "no step ever has the status `completed`"),
            ("lenght(outputs.a) > 1", "unknown function `lenght`"),
            ("outputs.a >", "not a CEL expression"),
            ("", "not a CEL expression"),
            ("outputs.a.all(x, [1].all(y, x == y))", "comprehension inside a comprehension"),
            ("outputs.a.all(x, x in outputs.a)", "it reads `outputs` for every element"),
            ("max(outputs.a, 1) > 1", "unknown function `max`"),
            ("outputs.a.exists(x, x.matches(x))", "unknown function `matches`"),
            (&deep("[", "]", 90), "not a CEL expression"),
            (&deep("!(", ")", 500), "not a CEL expression"),
            (&deep("outputs.a[", "]", 90), "not a CEL expression"),
            (&deep("1 + ", "", 60), "nests deeper than 32"),
            (&deep("1+", "", 1000), "nests deeper than 32"),
            (&long, "more than the 2048 allowed"),
        ];
        for (source, says) in cases {
            let problems = Condition::compile(source, "steps[0].when").expect_err(source).to_string();
            assert!(problems.contains(says), "{source}: {problems}");
            assert!(problems.starts_with("steps[0].when: "), "{problems}");
        }
    }

    #[test]
    fn g2_a_condition_that_can_not_give_a_boolean_is_a_mistake() {
        let cases = [
            ("5", Some("it gives int, not true or false")),
            ("'done'", Some("it gives string, not true or false")),
            ("budget.remaining_usd", Some("it gives float, not true or false")),
            ("steps.a.status", Some("it gives string, not true or false")),
            ("has(outputs.a) ? 'yes' : 'no'", Some("it gives string, not true or false")),
            ("1 / 0 == 1", Some("it always fails: ")),
            ("true", None),
            ("outputs.a", None),
            ("outputs.a == 'done' || budget.spent_usd > 1.0", None),
            ("steps.a.tokens / (steps.a.tokens - 1) > 2", None),
        ];
        for (source, says) in cases {
            let mistake = Condition::compile(source, "when").unwrap().mistake();
            assert_eq!(mistake.is_some(), says.is_some(), "{source}: {mistake:?}");
            assert!(mistake.unwrap_or_default().starts_with(says.unwrap_or_default()), "{source}");
        }
    }

    #[test]
    fn g3_the_values_of_a_condition_are_known_before_and_after() {
        let condition = Condition::compile(
            "outputs.review.score > 0.5 && has(outputs.x) && steps.s.status == \"failed\"",
            "",
        )
        .unwrap();
        assert_eq!(condition.outputs().collect::<Vec<_>>(), ["review", "x"]);
        assert_eq!(condition.steps().collect::<Vec<_>>(), ["s"]);
        let (_, saw) = condition.evaluate(&SampleScope);
        assert_eq!(saw["outputs"]["review"]["score"], 0.7);
    }
}
