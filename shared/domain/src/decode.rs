//! Decoding: bytes from outside become checked types here, or *all* their problems are returned at
//! once. A valid message is read once, by serde. Only an invalid one is validated against the JSON
//! Schema made from the same type, which finds every problem and its path. Nothing here panics on
//! invalid input.

use std::{
    any::TypeId,
    collections::HashMap,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use jsonschema::{
    JsonType, Validator,
    error::{TypeKind, ValidationError, ValidationErrorKind},
    paths::{Location, LocationSegment},
};
use schemars::JsonSchema;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    depth::{self, MAX_MESSAGE_DEPTH},
    id, json_schema,
    limits::MAX_MESSAGE_BYTES,
    money,
    problem::{Problems, nearest},
    schema, signature,
    terms::Text,
};

/// The most problems that are examined in one message. Answers list far fewer.
const MAX_FINDINGS: usize = 2000;
/// The most unknown fields of one object for which a similar known field is searched.
const MAX_HINTS: usize = 100;

/// Reads a JSON message.
pub fn json<T: DeserializeOwned + JsonSchema + 'static>(bytes: &[u8]) -> Result<T, Problems> {
    check_size(bytes.len())?;
    serde_json::from_slice(bytes).map_err(|error| match parse(bytes, Format::Json) {
        Ok(value) => explain::<T>(&value, &error.to_string()),
        Err(syntax) => syntax,
    })
}

/// Reads a JSON message from outside. Its depth is bounded, because parts of it are stored inside
/// other messages, which must be readable again (`depth`).
pub fn from_outside<T: DeserializeOwned + JsonSchema + 'static>(bytes: &[u8]) -> Result<T, Problems> {
    check_depth(bytes)?;
    json(bytes)
}

/// Reads a message of another process of the deployment. The sender may run a later version, so
/// unknown fields are ignored. The other functions read messages of clients and files, where an
/// unknown field is a mistake.
pub fn from_peer<T: DeserializeOwned + JsonSchema + 'static>(bytes: &[u8]) -> Result<T, Problems> {
    check_depth(bytes)?;
    check_size(bytes.len())?;
    serde_json::from_slice(bytes).or_else(|error| {
        let mut value = parse(bytes, Format::Json)?;
        let known = without_unknown::<T>(&mut value);
        let known = known.then(|| T::deserialize(&value).map_err(|error| error.to_string()));
        known.unwrap_or_else(|| Err(error.to_string())).map_err(|says| explain::<T>(&value, &says))
    })
}

/// Removes the fields that a type does not know from a value. Returns false if there are none, or
/// too many.
fn without_unknown<T: JsonSchema + 'static>(value: &mut Value) -> bool {
    let form = form::<T>();
    let mut found = false;
    // An unknown field can hide further unknown fields within its object, so the search repeats.
    for _ in 0..MAX_MESSAGE_DEPTH {
        let mut unknown = Vec::new();
        form.validator.iter_errors(value).for_each(|error| unknown_fields(&error, &mut unknown));
        if unknown.is_empty() || unknown.len() > MAX_FINDINGS {
            return found && unknown.is_empty();
        }
        for (object, field) in unknown {
            if let Some(Value::Object(fields)) = value.pointer_mut(&object) {
                fields.remove(&field);
            }
        }
        found = true;
    }
    found
}

/// Collects each unknown field with the path of its object.
fn unknown_fields(error: &ValidationError<'_>, found: &mut Vec<(String, String)>) {
    #[expect(clippy::wildcard_enum_match_arm, reason = "a foreign enum that grows with its crate")]
    match error.kind() {
        ValidationErrorKind::AdditionalProperties { unexpected } => {
            let object = error.instance_path().as_str();
            found.extend(unexpected.iter().map(|field| (object.to_owned(), field.clone())));
        }
        ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
            if let Meant::Branch(branch) = meant(context, error) {
                branch.iter().for_each(|inner| unknown_fields(inner, found));
            }
        }
        _ => {}
    }
}

/// Rejects JSON text that nests too deep; the error has the path.
pub fn check_depth(text: &[u8]) -> Result<(), Problems> {
    match depth::too_deep(text, MAX_MESSAGE_DEPTH) {
        None => Ok(()),
        Some(path) => {
            let message = format!("it nests deeper than the {MAX_MESSAGE_DEPTH} levels allowed");
            let hint = "put the deep part into a string, as JSON text";
            Err(Problems::one(&path, message, Some(hint.into())))
        }
    }
}

/// Reads a JSON value.
pub fn value<T: DeserializeOwned + JsonSchema + 'static>(value: &Value) -> Result<T, Problems> {
    T::deserialize(value).map_err(|error| explain::<T>(value, &error.to_string()))
}

/// The format of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Json,
    /// The parser limits anchors and aliases.
    Yaml,
}

/// Parses a text into a value. The meaning of the value is not checked.
pub fn parse(text: &[u8], format: Format) -> Result<Value, Problems> {
    check_size(text.len())?;
    let wrong = |what: String| Problems::one("", what, None);
    match format {
        Format::Json => {
            serde_json::from_slice(text).map_err(|error| wrong(format!("not valid JSON: {error}")))
        }
        Format::Yaml => {
            let text = str::from_utf8(text).map_err(|error| wrong(format!("not valid UTF-8: {error}")))?;
            // YAML 1.2: `y`, `no` and `on` are strings.
            let options = serde_saphyr::options! { strict_booleans: true };
            serde_saphyr::from_str_with_options(text, options).map_err(|error| {
                let reason =
                    error.without_snippet().render_with_formatter(&serde_saphyr::UserMessageFormatter);
                wrong(format!("not valid YAML: {reason}"))
            })
        }
    }
}

fn check_size(bytes: usize) -> Result<(), Problems> {
    if bytes <= MAX_MESSAGE_BYTES {
        return Ok(());
    }
    let message = format!("the message has {bytes} bytes, more than the {MAX_MESSAGE_BYTES} allowed");
    let hint = "put large values into the shared store or an object, and refer to them";
    Err(Problems::one("", message, Some(hint.into())))
}

/// Returns every problem that the schema finds, or serde's own message if the schema finds none.
fn explain<T: JsonSchema + 'static>(value: &Value, serde_says: &str) -> Problems {
    let form = form::<T>();
    let found = findings(&form.schema, &form.validator, value);
    // A newtype's own check is more precise than the pattern or type in its schema.
    let checked: Vec<String> = found.iter().filter(|f| f.from_check).map(|f| f.path.clone()).collect();
    let mut problems = Problems::default();
    for finding in found {
        if finding.from_check || !checked.contains(&finding.path) {
            problems.add(finding.path, finding.message, finding.hint);
        }
    }
    if problems.is_empty() {
        problems.add("", serde_says, None);
    }
    problems
}

/// Returns all problems of a value with one of our schemas, in words for people.
fn findings(schema: &Value, validator: &Validator, value: &Value) -> Vec<Finding> {
    collected(schema, &mut validator.iter_errors(value))
}

/// Returns all problems of a value with a client's, agent's or tool server's schema.
pub(crate) fn findings_of_theirs(
    schema: &Value,
    compiled: &json_schema::JsonSchema,
    value: &Value,
) -> Vec<Finding> {
    compiled
        .errors(value, |errors| collected(schema, errors))
        .unwrap_or_else(|message| vec![Finding::of_all(message)])
}

fn collected(schema: &Value, errors: &mut dyn Iterator<Item = ValidationError<'_>>) -> Vec<Finding> {
    let mut found = Vec::new();
    for error in errors {
        Fitting { schema }.collect(&error, &mut found);
        if found.len() >= MAX_FINDINGS {
            break;
        }
    }
    found
}

pub(crate) struct Finding {
    pub(crate) path: String,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    /// The name of the missing field, if the mistake is a missing field of the value at `path`.
    pub(crate) missing: Option<String>,
    from_check: bool,
}

impl Finding {
    /// A problem of the whole value.
    pub(crate) fn of_all(message: String) -> Self {
        Finding { path: String::new(), message, hint: None, missing: None, from_check: false }
    }
}

/// A type's schema, and its validator.
struct Form {
    schema: Value,
    validator: Validator,
}

/// Explains the errors of a value, with the schema that the value should match.
struct Fitting<'a> {
    schema: &'a Value,
}

impl Fitting<'_> {
    fn collect(&self, error: &ValidationError<'_>, found: &mut Vec<Finding>) {
        let path = readable(error.instance_path());
        let mut add = |path: String, message: String, hint: Option<String>, from_check: bool| {
            found.push(Finding { path, message, hint, missing: None, from_check });
        };
        #[expect(clippy::wildcard_enum_match_arm, reason = "a foreign enum that grows with its crate")]
        match error.kind() {
            ValidationErrorKind::AdditionalProperties { unexpected } => {
                // A message can have a million unknown fields, and the search for similar names
                // takes time.
                for (index, field) in unexpected.iter().take(MAX_FINDINGS).enumerate() {
                    let at = if path.is_empty() { field.clone() } else { format!("{path}.{field}") };
                    let hint = if index < MAX_HINTS { self.known_field(error, field) } else { None };
                    add(at, format!("unknown field `{field}`"), hint, false);
                }
            }
            ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
                match meant(context, error) {
                    Meant::Branch(branch) => branch.iter().for_each(|inner| self.collect(inner, found)),
                    Meant::OneOf(allowed) => {
                        let given = error.instance();
                        let message = format!("{} is not one of {}", shown(given), allowed.join(", "));
                        add(path, message, nearest_of(given, &allowed), false);
                    }
                    Meant::Type(types) => {
                        let message =
                            format!("it should be {}, not {}", either(&types), shown(error.instance()));
                        add(path, message, None, false);
                    }
                }
            }
            ValidationErrorKind::Custom { message, .. } => {
                let check = self.schema.pointer(error.schema_path().as_str()).and_then(Value::as_str);
                add(path, message.clone(), check.map(hint_for), true);
            }
            ValidationErrorKind::Type { kind } => {
                let message =
                    format!("it should be {}, not {}", either(&expected(kind)), shown(error.instance()));
                add(path, message, None, false);
            }
            ValidationErrorKind::Enum { options } => {
                let allowed: Vec<String> = options
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_str)
                    .map(str::to_owned)
                    .collect();
                let given = error.instance();
                let message = format!("{} is not one of {}", shown(given), allowed.join(", "));
                add(path, message, nearest_of(given, &allowed), false);
            }
            ValidationErrorKind::Required { property } => {
                let name = property.as_str().unwrap_or_default();
                let (message, missing) = (format!("`{name}` is missing"), Some(name.to_owned()));
                found.push(Finding { path, message, hint: None, missing, from_check: false });
            }
            _ => add(path, error.masked_with(shown(error.instance())).to_string(), None, false),
        }
    }

    fn known_field(&self, error: &ValidationError<'_>, field: &str) -> Option<String> {
        let place = error.schema_path().as_str().strip_suffix("/additionalProperties")?;
        let properties = self.schema.pointer(place)?.get("properties")?.as_object()?;
        let known = properties.keys().map(String::as_str);
        Some(match nearest(field, known.clone()) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("known fields: {}", known.collect::<Vec<_>>().join(", ")),
        })
    }
}

/// The most likely intention behind a value that matches none of its alternatives.
enum Meant<'a> {
    /// This alternative; the errors are its problems.
    Branch(&'a [ValidationError<'static>]),
    /// One of these words; the value has none of them.
    OneOf(Vec<String>),
    /// A value of one of these types; the value has another type.
    Type(Vec<JsonType>),
}

/// Returns the alternative whose first problem lies deepest. If no alternative matches by name,
/// returns the names.
fn meant<'a>(branches: &'a [Vec<ValidationError<'static>>], of: &ValidationError<'_>) -> Meant<'a> {
    let depth = |error: &ValidationError<'_>| error.instance_path().as_str().matches('/').count();
    let first = |branch: &[ValidationError<'static>]| branch.iter().map(depth).min().unwrap_or(0);
    let wrong_type = |branch: &[ValidationError<'static>]| {
        let at = first(branch);
        branch.iter().any(|e| depth(e) == at && matches!(e.kind(), ValidationErrorKind::Type { .. }))
    };
    let best = branches.iter().max_by_key(|b| (first(b), !wrong_type(b), std::cmp::Reverse(b.len())));
    let best = best.map_or(&[] as &[_], Vec::as_slice);
    // If a value within it has the wrong type, the inner value is the mistake, not the whole.
    if wrong_type(best) && first(best) == depth(of) {
        return Meant::Type(branches.iter().flatten().flat_map(types_in).collect());
    }
    let names: Vec<String> =
        branches.iter().flatten().filter(|e| depth(e) == first(best)).filter_map(name_in).collect();
    // One missing name is a problem of a struct; several are the names of the alternatives.
    let is_here = first(best) == depth(of);
    if is_here
        && names.len() > 1
        && best.iter().any(|error| depth(error) == first(best) && name_in(error).is_some())
    {
        Meant::OneOf(names)
    } else {
        Meant::Branch(best)
    }
}

/// Returns the name of an alternative: a constant, or its one required field.
fn name_in(error: &ValidationError<'_>) -> Option<String> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "a foreign enum that grows with its crate")]
    match error.kind() {
        ValidationErrorKind::Constant { expected_value } => expected_value.as_str().map(str::to_owned),
        ValidationErrorKind::Required { property } => property.as_str().map(str::to_owned),
        ValidationErrorKind::Enum { options } => {
            let words: Vec<&str> = options.as_array()?.iter().filter_map(Value::as_str).collect();
            Some(words.join(", "))
        }
        _ => None,
    }
}

fn types_in(error: &ValidationError<'_>) -> Vec<JsonType> {
    if let ValidationErrorKind::Type { kind } = error.kind() { expected(kind) } else { Vec::new() }
}

fn expected(kind: &TypeKind) -> Vec<JsonType> {
    match kind {
        TypeKind::Single(one) => vec![*one],
        TypeKind::Multiple(set) => set.iter().collect(),
    }
}

/// Joins types: "a string or an object". `null` is not listed, because such a field may be left
/// out.
fn either(types: &[JsonType]) -> String {
    let article = |t: &JsonType| if t.as_str().starts_with(['a', 'i', 'o']) { "an" } else { "a" };
    let mut names: Vec<String> = types
        .iter()
        .filter(|t| **t != JsonType::Null || types.len() == 1)
        .map(|t| format!("{} {}", article(t), t.as_str()))
        .collect();
    names.dedup();
    names.join(" or ")
}

fn nearest_of(given: &Value, allowed: &[String]) -> Option<String> {
    let word = match given {
        Value::String(word) => word.as_str(),
        Value::Object(fields) => fields.keys().next()?.as_str(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => return None,
    };
    let meant = nearest(word, allowed.iter().map(String::as_str))?;
    Some(format!("did you mean `{meant}`?"))
}

/// Formats `/steps/2/input_from/0` as `steps[2].input_from[0]`.
fn readable(location: &Location) -> String {
    let mut path = String::new();
    for segment in location {
        match segment {
            LocationSegment::Property(name) => {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(&name);
            }
            LocationSegment::Index(index) => path.push_str(&format!("[{index}]")),
        }
    }
    path
}

/// Shortens a value for an error message.
fn shown(value: &Value) -> String {
    const LONGEST: usize = 60;
    let text = value.to_string();
    match text.char_indices().nth(LONGEST) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text,
    }
}

fn hint_for(check: &str) -> String {
    match check {
        "usd" => "dollars from 0 to 1000000 with at most 9 decimals, as 0.5 or \"0.5\"",
        "tokens" => "a whole number from 0 to 1000000000000",
        "trace_id" => "32 lowercase hex digits, or leave it out to get a new one",
        "context key" => "letters, digits, '-', '_' and '.', starting with a letter or digit",
        "label value" => {
            "a text of letters, digits and any of _ - . : / @ +, starting with a letter or digit, at most 128 characters"
        }
        "step path" => "the id of a step; `outer/inner` for a step of a graph that a step uses",
        "text" => "a text that is not empty, at most 64 KiB",
        "secret" => {
            "the name that the workers' settings give it, never its value: capital letters, digits and '_', starting with a letter, at most 64 characters"
        }
        "webhook secret" => "as `trellis webhooks secret` makes it: `whsec_` and 24 to 64 bytes in base64",
        "tool" | "model" => "letters, digits and any of _ - . : / @ +, starting with a letter or digit",
        _ => "letters, digits, '-' and '_', starting with a letter or digit, at most 64 characters",
    }
    .into()
}

fn form<T: JsonSchema + 'static>() -> Arc<Form> {
    static BUILT: OnceLock<Mutex<HashMap<TypeId, Arc<Form>>>> = OnceLock::new();
    let mut built = BUILT.get_or_init(Default::default).lock().unwrap_or_else(PoisonError::into_inner);
    built
        .entry(TypeId::of::<T>())
        .or_insert_with(|| {
            let schema = schema::of::<T>();
            Arc::new(Form { validator: validator(&schema), schema })
        })
        .clone()
}

fn validator(schema: &Value) -> Validator {
    jsonschema::options()
        .with_keyword("x-check", |parent, check, _| {
            let check = check.as_str().unwrap_or_default().to_owned();
            Ok(Box::new(Check { check, nullable: allows_null(parent) }))
        })
        .build(schema)
        .expect("schemas made from our own types are valid")
}

fn allows_null(schema: &serde_json::Map<String, Value>) -> bool {
    schema.get("type").and_then(Value::as_array).is_some_and(|types| types.iter().any(|t| t == "null"))
}

/// Calls the newtype's own constructor where its schema applies, so that each rule is written only
/// once.
struct Check {
    check: String,
    nullable: bool,
}

impl Check {
    fn run(&self, value: &Value) -> Result<(), String> {
        fn reads<T: for<'de> Deserialize<'de>>(value: &Value) -> Result<(), String> {
            T::deserialize(value).map(drop).map_err(|e| e.to_string())
        }
        if self.nullable && value.is_null() {
            return Ok(());
        }
        match self.check.as_str() {
            "usd" => reads::<money::Usd>(value),
            "tokens" => reads::<money::Tokens>(value),
            "trace_id" => reads::<id::TraceId>(value),
            "child_id" => reads::<id::ChildId>(value),
            "agent_id" => reads::<id::AgentId>(value),
            "step id" => reads::<id::StepId>(value),
            "step path" => reads::<id::StepPath>(value),
            "call_id" => reads::<id::CallId>(value),
            "lease token" => reads::<id::LeaseToken>(value),
            "worker_id" => reads::<id::WorkerId>(value),
            "thread_id" => reads::<id::ThreadId>(value),
            "pool" => reads::<id::PoolName>(value),
            "check" => reads::<id::CheckName>(value),
            "schedule" => reads::<id::ScheduleName>(value),
            "graph name" => reads::<id::GraphName>(value),
            "webhook" => reads::<id::WebhookName>(value),
            "webhook secret" => reads::<signature::Secret>(value),
            "context key" => reads::<id::ContextKey>(value),
            "label" => reads::<id::LabelKey>(value),
            "label value" => reads::<id::LabelValue>(value),
            "secret" => reads::<id::SecretName>(value),
            "tool" => reads::<id::ToolName>(value),
            "model" => reads::<id::ModelName>(value),
            "text" => reads::<Text>(value),
            unknown => Err(format!("no check is called {unknown}")),
        }
    }
}

impl<'i> jsonschema::Keyword<'i> for Check {
    fn validate(&self, value: &'i Value) -> Result<(), ValidationError<'i>> {
        self.run(value).map_err(ValidationError::custom)
    }

    fn is_valid(&self, value: &'i Value) -> bool {
        self.run(value).is_ok()
    }
}
