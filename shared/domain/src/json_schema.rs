//! JSON Schemas from a client, an agent or a tool server. Checking a value takes bounded time and
//! stack under any schema and any value.
//!
//! A schema may apply to one part of a value many times, and each repeated reference doubles that
//! number. So every schema within a schema gets an additional keyword. The keyword counts each
//! application, and ends the check once its steps are used up. It is an element of `allOf`, which
//! is checked before the keywords that try one schema after another. An application takes steps for
//! everything that its keywords read: `uniqueItems` reads the whole list, `format` the whole text.
//!
//! Compiled patterns take bounded memory together.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    fmt,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

use jsonschema::{Keyword, PatternOptions, ValidationError, Validator};
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{json::size_bytes, limits::MAX_SCHEMA_BYTES};

/// The keyword that counts applications.
const STEPS: &str = "x-trellis-steps";
/// The steps of a check of the smallest value. One step takes about a tenth of a microsecond.
const MIN_STEPS: u64 = 100_000;
/// The additional steps for each byte of the value.
const STEPS_PER_BYTE: u64 = 4;
/// The bytes of a schema's own content, such as the texts of an `enum`, that one step reads.
const BYTES_PER_STEP: u64 = 256;
/// The bytes of a text that one step reads for one keyword.
const TEXT_PER_STEP: u64 = 64;
/// The bytes of a list that one step compares for `uniqueItems`.
const LIST_PER_STEP: u64 = 16;
/// The most patterns of a schema, and the most memory that they take compiled. Each may take an
/// equal part of it.
const MAX_PATTERNS: usize = 64;
const MAX_PATTERN_BYTES: usize = 4 << 20;
/// The most memory that the cache of a pattern's matches takes.
const MAX_MATCH_BYTES: usize = 256 << 10;
/// The longest chain of schemas that apply to one part of a value because of each other. A check
/// needs that many stack frames for each level of the value.
const MAX_CHAIN: usize = 32;

/// Keywords whose schemas apply to the same part of a value: one schema, a list or a map of them.
const SAME: [&str; 9] =
    ["not", "if", "then", "else", "allOf", "anyOf", "oneOf", "dependentSchemas", "dependencies"];
/// Keywords whose schemas apply to smaller parts of a value, or to the place of a reference.
const OTHERS: [&str; 13] = [
    "items",
    "prefixItems",
    "additionalItems",
    "unevaluatedItems",
    "contains",
    "properties",
    "patternProperties",
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
    "contentSchema",
    "$defs",
    "definitions",
];
/// The keywords of both lists that have a map.
const MAPS: [&str; 6] =
    ["dependentSchemas", "dependencies", "properties", "patternProperties", "$defs", "definitions"];
/// Keywords that read the whole text of a value.
const TEXTS: [&str; 6] =
    ["pattern", "minLength", "maxLength", "format", "contentEncoding", "contentMediaType"];
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

thread_local! {
    /// The steps that are left in the current check of this thread.
    static LEFT: Cell<u64> = const { Cell::new(0) };
}

/// The panic payload of a check that has no steps left.
struct UsedUp;

/// A compiled schema.
pub struct JsonSchema {
    validator: Validator,
}

impl JsonSchema {
    /// Compiles a schema. References are never fetched. Matching a pattern takes time linear in its
    /// text, so patterns with look-around or back-references are rejected.
    pub fn compile(schema: &Value) -> Result<Self, String> {
        let bytes = schema.to_string().len() as u64;
        if bytes > MAX_SCHEMA_BYTES {
            return Err(format!("the schema has {bytes} bytes, more than {MAX_SCHEMA_BYTES} allowed"));
        }
        let mut counted = schema.clone();
        let mut found = FoundSchemas::default();
        found.schema(&mut counted, String::new());
        found.check()?;
        let patterns = PatternOptions::regex()
            .size_limit(MAX_PATTERN_BYTES / found.patterns.max(1))
            .dfa_size_limit(MAX_MATCH_BYTES);
        let options =
            jsonschema::options().with_pattern_options(patterns).with_keyword(STEPS, |_, step, _| {
                let step =
                    Step::deserialize(step).map_err(|error| ValidationError::custom(error.to_string()))?;
                Ok(Box::new(step))
            });
        let validator = options.build(&counted).map_err(|error| format!("not a JSON Schema: {error}"))?;
        Ok(JsonSchema { validator })
    }

    /// Passes the errors of a value to `read`. Returns an error if the check takes too many steps.
    pub(crate) fn errors<R>(
        &self,
        value: &Value,
        read: impl FnOnce(&mut dyn Iterator<Item = ValidationError<'_>>) -> R,
    ) -> Result<R, String> {
        let bytes = value.to_string().len() as u64;
        LEFT.set(MIN_STEPS + STEPS_PER_BYTE * bytes);
        let checked = catch_unwind(AssertUnwindSafe(|| read(&mut self.validator.iter_errors(value))));
        checked.map_err(|why| match why.downcast::<UsedUp>() {
            Ok(_) => "it takes too many steps to check: the schema applies to it too often".to_owned(),
            Err(why) => resume_unwind(why),
        })
    }

    /// Returns at most `most` errors of a value, each with its path: empty, or beginning with `/`.
    pub fn mistakes(&self, value: &Value, most: usize) -> Vec<(String, String)> {
        let read = |errors: &mut dyn Iterator<Item = ValidationError<'_>>| {
            errors.take(most).map(|error| (error.instance_path().to_string(), error.to_string())).collect()
        };
        self.errors(value, read).unwrap_or_else(|too_many| vec![(String::new(), too_many)])
    }
}

impl fmt::Debug for JsonSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JsonSchema")
    }
}

/// The counter of one schema: each application takes its steps.
#[derive(Serialize, Deserialize)]
struct Step {
    weight: u64,
    /// The steps for each element of a list, for each key of an object, and for each
    /// [`TEXT_PER_STEP`] bytes of a text.
    each_element: u64,
    each_key: u64,
    each_text: u64,
    /// The elements of a list are compared.
    compares: bool,
}

impl Step {
    fn of(schema: &Map<String, Value>) -> Self {
        let weights = |names: &[&str]| {
            let found = names.iter().filter_map(|name| Some((name, schema.get(*name)?)));
            found.map(|(name, value)| weight_of(name, value)).sum()
        };
        let elements = ["items", "prefixItems", "additionalItems", "unevaluatedItems", "contains"];
        let keys = ["patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames"];
        Step {
            weight: weight(schema),
            each_element: weights(&elements),
            each_key: weights(&keys),
            each_text: TEXTS.iter().filter(|name| schema.contains_key(**name)).count() as u64,
            compares: schema.get("uniqueItems") == Some(&Value::Bool(true)),
        }
    }

    fn count(&self, value: &Value) {
        let more = match value {
            Value::Array(list) => {
                let compared = if self.compares { size_bytes(value) / LIST_PER_STEP } else { 0 };
                self.each_element * list.len() as u64 + compared
            }
            Value::Object(fields) => self.each_key * fields.len() as u64,
            Value::String(text) => self.each_text * (text.len() as u64 / TEXT_PER_STEP),
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        };
        match LEFT.get().checked_sub(self.weight + more) {
            Some(left) => LEFT.set(left),
            // `resume_unwind` runs no panic hook, so ending a check early reports no panic.
            None => resume_unwind(Box::new(UsedUp)),
        }
    }
}

/// Returns the steps of one application, including the schemas within that apply to the same part.
fn weight(schema: &Map<String, Value>) -> u64 {
    let is_own = |key: &str| !SAME.contains(&key) && !OTHERS.contains(&key);
    let own: usize =
        schema.iter().filter(|(key, _)| is_own(key)).map(|(_, value)| value.to_string().len()).sum();
    let same = SAME.iter().filter_map(|name| Some(weight_of(name, schema.get(*name)?)));
    1 + own as u64 / BYTES_PER_STEP + same.sum::<u64>()
}

/// Returns the steps of a keyword's schemas.
fn weight_of(name: &str, value: &Value) -> u64 {
    match value {
        Value::Array(list) => list.iter().filter_map(Value::as_object).map(weight).sum(),
        Value::Object(map) if MAPS.contains(&name) => {
            map.values().map(|value| value.as_object().map_or(1, weight)).sum()
        }
        Value::Object(schema) => weight(schema),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

impl<'i> Keyword<'i> for Step {
    fn validate(&self, value: &'i Value) -> Result<(), ValidationError<'i>> {
        self.count(value);
        Ok(())
    }

    fn is_valid(&self, value: &'i Value) -> bool {
        self.count(value);
        true
    }
}

/// The schemas within a schema by their place, each with the places of the schemas that apply to
/// the same part.
#[derive(Default)]
struct FoundSchemas {
    schemas: BTreeMap<String, Vec<String>>,
    /// The number of patterns.
    patterns: usize,
    mistakes: BTreeSet<String>,
}

impl FoundSchemas {
    /// Records a schema and all schemas within it, and adds the counting keyword to each.
    fn schema(&mut self, schema: &mut Value, at: String) {
        let mut same = Vec::new();
        if let Value::Object(fields) = schema {
            let step = json!({STEPS: Step::of(fields)});
            self.patterns += usize::from(fields.contains_key("pattern"))
                + fields.get("patternProperties").and_then(Value::as_object).map_or(0, Map::len);
            for (key, value) in fields.iter_mut() {
                let (name, place) = (key.as_str(), format!("{at}/{}", escaped(key)));
                if SAME.contains(&name) || OTHERS.contains(&name) {
                    for (value, place) in schemas_of(name, value, place) {
                        same.extend(SAME.contains(&name).then(|| place.clone()));
                        self.schema(value, place);
                    }
                } else if let (Value::String(to), true) = (&*value, REFERENCES.contains(&name)) {
                    same.extend(self.reference(to));
                } else if name == STEPS {
                    self.mistakes.insert(format!("`{STEPS}` is a reserved keyword"));
                } else if name == "$id" && !at.is_empty() {
                    self.mistakes.insert("only the whole schema may have an `$id`".into());
                }
            }
            // Appended after the schemas of `allOf`, so that their places stay.
            match fields.entry("allOf").or_insert_with(|| json!([])) {
                Value::Array(all) => all.push(step),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
                    self.mistakes.insert("`allOf` is a list of schemas".into());
                }
            }
        }
        self.schemas.insert(at, same);
    }

    /// Accepts only references to a place within the schema. Schemas elsewhere have no counter.
    fn reference(&mut self, to: &str) -> Option<String> {
        let place = to.strip_prefix('#').filter(|place| place.is_empty() || place.starts_with('/'));
        if place.is_none() {
            let hint = "as `#/$defs/name` is";
            self.mistakes.insert(format!("`{to}` is not a reference to a place within the schema, {hint}"));
        }
        place.map(decoded)
    }

    fn check(&mut self) -> Result<(), String> {
        for place in self.schemas.values().flatten().filter(|place| !self.schemas.contains_key(*place)) {
            self.mistakes.insert(format!("`#{place}` is not a schema within the schema"));
        }
        if self.patterns > MAX_PATTERNS {
            let count = self.patterns;
            self.mistakes
                .insert(format!("the schema has {count} patterns, more than {MAX_PATTERNS} allowed"));
        }
        if let Some(mistake) = self.mistakes.pop_first() {
            return Err(mistake);
        }
        let mut chains = BTreeMap::new();
        for place in self.schemas.keys() {
            self.chain(place, &mut Vec::new(), &mut chains)?;
        }
        Ok(())
    }

    /// Returns the length of the longest chain of schemas that apply because this one does.
    fn chain<'a>(
        &'a self,
        at: &'a str,
        above: &mut Vec<&'a str>,
        known: &mut BTreeMap<&'a str, usize>,
    ) -> Result<usize, String> {
        if let Some(known) = known.get(at) {
            return Ok(*known);
        }
        if above.contains(&at) {
            return Err(format!("`#{at}` refers to itself for the same part of a value"));
        }
        above.push(at);
        let mut longest = 0;
        for next in &self.schemas[at] {
            longest = longest.max(1 + self.chain(next, above, known)?);
        }
        above.pop();
        known.insert(at, longest);
        if longest > MAX_CHAIN || above.len() > MAX_CHAIN {
            let what = "schemas apply to one part of a value, each because of the one before";
            return Err(format!("more than {MAX_CHAIN} {what}"));
        }
        Ok(longest)
    }
}

/// Returns the schemas of a keyword, with their places.
fn schemas_of<'a>(name: &str, value: &'a mut Value, at: String) -> Vec<(&'a mut Value, String)> {
    if value.is_object() && !MAPS.contains(&name) {
        return vec![(value, at)];
    }
    match value {
        Value::Array(list) => {
            list.iter_mut().enumerate().map(|(index, value)| (value, format!("{at}/{index}"))).collect()
        }
        Value::Object(map) => {
            map.iter_mut().map(|(key, value)| (value, format!("{at}/{}", escaped(key)))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => vec![(value, at)],
    }
}

/// Escapes a key for a JSON pointer.
fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// Decodes a JSON pointer in a URL. If the result is not valid text, it matches no schema's place.
fn decoded(pointer: &str) -> String {
    percent_decode_str(pointer).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistakes(schema: &Value, value: &Value) -> Vec<String> {
        let found = JsonSchema::compile(schema).unwrap().mistakes(value, 3);
        found.into_iter().map(|(path, message)| format!("{path}: {message}")).collect()
    }

    /// Each definition applies the next one `times` times.
    fn repeating(keyword: &str, levels: usize, times: usize) -> Value {
        let level = |n: usize| {
            let next = json!({"$ref": format!("#/$defs/a{}", n + 1)});
            (format!("a{n}"), json!({keyword: vec![next; times]}))
        };
        let mut definitions: Map<String, Value> = (0..levels).map(level).collect();
        definitions.insert(format!("a{levels}"), json!({"type": "string"}));
        json!({"$defs": definitions, "$ref": "#/$defs/a0"})
    }

    #[test]
    fn l_a_schema_that_applies_too_often_is_refused() {
        assert_eq!(mistakes(&repeating("allOf", 8, 2), &json!("x")), Vec::<String>::new());
        for keyword in ["allOf", "anyOf", "oneOf"] {
            let found = mistakes(&repeating(keyword, 12, 8), &json!(1));
            assert!(found[0].contains("too many steps"), "{keyword}: {found:?}");
        }
        let refused = JsonSchema::compile(&repeating("allOf", 40, 2)).unwrap_err();
        assert!(refused.starts_with("more than 32 schemas apply to one part of a value"), "{refused}");
    }

    #[test]
    fn l_a_schema_whose_work_doubles_with_each_level_is_refused() {
        let schema = json!({"items": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}});
        let nested = (0..60).fold(json!([]), |value, _| json!([value]));
        assert!(mistakes(&schema, &nested)[0].contains("too many steps"));
        assert_eq!(mistakes(&schema, &json!([[[[]]]])), Vec::<String>::new());
    }

    #[test]
    fn l_many_patterns_and_long_lists_of_values_count() {
        let patterns: Map<String, Value> = (0..60).map(|n| (format!("^k{n}$"), json!(true))).collect();
        let fields: Map<String, Value> = (0..30_000).map(|n| (format!("x{n}"), json!(1))).collect();
        let found = mistakes(&json!({"patternProperties": patterns}), &Value::Object(fields));
        assert!(found[0].contains("too many steps"), "{found:?}");
        let allowed: Vec<u32> = (0..10_000).collect();
        let found = mistakes(&json!({"items": {"enum": allowed}}), &json!(vec![9_999; 200_000]));
        assert!(found[0].contains("too many steps"), "{found:?}");
    }

    #[test]
    fn l_a_keyword_takes_steps_for_all_that_it_reads() {
        let list = json!((0..10_000).collect::<Vec<u32>>());
        let text = json!("7".repeat(100_000));
        for (keyword, argument, value) in [
            ("uniqueItems", json!(true), &list),
            ("pattern", json!("^[0-9]*$"), &text),
            ("minLength", json!(1), &text),
            ("maxLength", json!(1_000_000), &text),
            ("format", json!("regex"), &text),
            ("contentMediaType", json!("application/json"), &text),
            ("contentEncoding", json!("base64"), &text),
        ] {
            let applied = |times: usize| {
                let schema = json!({keyword: argument.clone()});
                let repeated =
                    json!({"$defs": {"one": schema}, "allOf": vec![json!({"$ref": "#/$defs/one"}); times]});
                mistakes(&repeated, value)
            };
            assert_eq!(applied(2), Vec::<String>::new(), "{keyword}");
            let found = applied(800);
            assert!(found[0].contains("too many steps"), "{keyword}: {found:?}");
        }
    }

    #[test]
    fn l_compiled_patterns_are_bounded_together() {
        let refused = |schema: Value| JsonSchema::compile(&schema).unwrap_err();
        let named = |count: usize, pattern: &str| {
            let schemas: Map<String, Value> =
                (0..count).map(|n| (format!("k{n}"), json!({"pattern": pattern}))).collect();
            json!({"properties": schemas})
        };
        assert!(refused(named(65, "^a$")).contains("65 patterns, more than 64 allowed"));
        let keys: Map<String, Value> = (0..65).map(|n| (format!("^k{n}$"), json!(true))).collect();
        assert!(refused(json!({"patternProperties": keys})).contains("more than 64"));
        assert!(JsonSchema::compile(&named(64, "^[A-Za-z0-9_-]{1,64}$")).is_ok());
        // One such pattern is accepted, and sixty of them are not: they would take 60 MB.
        let large = "^([a-z]{1,100}-){1,100}$";
        assert!(JsonSchema::compile(&named(1, large)).is_ok());
        assert!(refused(named(60, large)).contains("not a JSON Schema"));
        assert!(refused(named(1, "^(((a{1,100}){1,100}){1,100})$")).contains("not a JSON Schema"));
    }

    #[test]
    fn a_value_of_a_megabyte_is_checked() {
        let schema = json!({"type": "array", "items": {"$ref": "#/$defs/row"}, "$defs": {"row": {
            "type": "object", "required": ["id"], "additionalProperties": false,
            "properties": {"id": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}}}}}});
        let rows: Vec<Value> = (0..30_000).map(|id| json!({"id": id, "tags": ["a", "b", "c"]})).collect();
        assert_eq!(mistakes(&schema, &json!(rows)), Vec::<String>::new());
        let tree = json!({"anyOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#"}}]});
        let value = json!([["a", ["b"]], vec!["c"; 100_000]]);
        assert_eq!(mistakes(&tree, &value), Vec::<String>::new());
    }

    #[test]
    fn l_references_lead_to_schemas_within_it() {
        let refused = |schema: Value| JsonSchema::compile(&schema).unwrap_err();
        assert_eq!(
            refused(json!({"$ref": "#/enum/0", "enum": [{"type": "string"}]})),
            "`#/enum/0` is not a schema within the schema"
        );
        assert!(
            refused(json!({"$ref": "other.json"})).contains("not a reference to a place within the schema")
        );
        assert!(refused(json!({"$defs": {"a": {"$id": "b", "type": "string"}}})).contains("`$id`"));
        assert!(refused(json!({"$ref": "#"})).contains("refers to itself"));
        assert!(refused(json!({"allOf": [{"not": {"$ref": "#"}}]})).contains("refers to itself"));
        let schema = json!({"$defs": {"a b/c": {"type": "string"}}, "$ref": "#/$defs/a%20b~1c"});
        assert_eq!(mistakes(&schema, &json!(1)), [": 1 is not of type \"string\""]);
    }

    /// Runs on a thread with an executor's stack size.
    #[test]
    fn l_deep_schemas_and_values_do_not_overflow_the_stack() {
        let check = || {
            let chain =
                |n: usize, last: &str| (0..n).fold(json!({"$ref": last}), |next, _| json!({"allOf": [next]}));
            let nested = (0..64).fold(json!([]), |value, _| json!([value]));
            let schema = json!({"items": chain(MAX_CHAIN - 4, "#")});
            assert_eq!(mistakes(&schema, &nested), Vec::<String>::new());
            let level =
                |n: usize| (format!("a{n}"), json!({"items": {"$ref": format!("#/$defs/a{}", n + 1)}}));
            let mut definitions: Map<String, Value> = (0..1_500).map(level).collect();
            definitions.insert("a1500".into(), json!(true));
            let schema = json!({"$defs": definitions, "$ref": "#/$defs/a0"});
            JsonSchema::compile(&schema).map(|schema| schema.mistakes(&nested, 1)).unwrap();
        };
        std::thread::Builder::new().stack_size(2 << 20).spawn(check).unwrap().join().unwrap();
    }
}
