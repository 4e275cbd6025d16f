//! Decodes answers of Redis. An answer of the wrong form becomes an error that quotes it.

use std::collections::HashMap;

use bus::Position;
use domain::{Timestamp, TraceId};
use redis::{FromRedisValue, RedisResult, Value};

use super::{
    super::{CommitOutcome, Error, LogMark, Record, UNREADABLE, keys},
    WRONG_TYPE,
};

/// The most digits of a counter: scripts count with doubles.
const MAX_COUNTER_DIGITS: usize = 15;

/// Decodes an answer into a type.
pub(super) fn decode<T: FromRedisValue>(doing: &'static str, value: Value) -> Result<T, Error> {
    redis::from_redis_value(value).map_err(|error| corrupt(doing, &error.to_string()))
}

pub(super) fn corrupt(doing: &'static str, found: &str) -> Error {
    Error::Corrupt { doing, found: found.chars().take(200).collect() }
}

/// Parses a text as a number.
pub(super) fn number_in<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Reads the counter of a partition. An invalid counter, which only a stranger writes, is read as
/// 0: the caller then notices a loss and logs it.
pub(super) fn counter(answer: RedisResult<Value>) -> RedisResult<u64> {
    let text = match answer {
        Ok(answer) => redis::from_redis_value::<Option<Vec<u8>>>(answer).ok().flatten(),
        Err(error) if error.code() == Some(WRONG_TYPE) => None,
        Err(error) => return Err(error),
    };
    Ok(text.map_or(0, |text| counter_in(&text)))
}

/// Parses a counter by the rules of the scripts.
fn counter_in(text: &[u8]) -> u64 {
    let is_counter = text.len() <= MAX_COUNTER_DIGITS && text.iter().all(u8::is_ascii_digit);
    number_in(text).filter(|_| is_counter).unwrap_or(0)
}

pub(super) fn committed(doing: &'static str, value: Value) -> Result<CommitOutcome, Error> {
    let words: Vec<String> = decode(doing, value)?;
    let number = |text: &str| text.parse().map_err(|_| corrupt(doing, text));
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["done", counter] => Ok(CommitOutcome::Done { counter: number(counter)? }),
        ["conflict", version, counter] => {
            // An invalid version equals no expected version.
            let version = version.parse().unwrap_or(UNREADABLE);
            Ok(CommitOutcome::Conflict { version, counter: counter_in(counter.as_bytes()) })
        }
        ["outdated", revision, counter] => Ok(CommitOutcome::Outdated {
            revision: number(revision)?,
            counter: counter_in(counter.as_bytes()),
        }),
        other => Err(corrupt(doing, &format!("{other:?}"))),
    }
}

/// Returns true if a mark was set, and the state of the partition before.
pub(super) fn log_mark(doing: &'static str, value: Value) -> Result<(bool, LogMark), Error> {
    let words: Vec<String> = decode(doing, value)?;
    let wrong = || corrupt(doing, &format!("{words:?}"));
    let [word, counter, mark, run] = words.as_slice() else { return Err(wrong()) };
    let done = match word.as_str() {
        "done" => true,
        "differs" => false,
        _ => return Err(wrong()),
    };
    // An invalid mark is read as none: a sweep then reads the whole log.
    let position = Position::parse(mark);
    let counter = counter.parse().map_err(|_| wrong())?;
    Ok((done, LogMark { counter, position, run: run.clone() }))
}

/// Makes a record from the trace's hash and the hash of its values. A trace that does not exist is
/// an empty hash.
pub(super) fn record(
    doing: &'static str,
    mut fields: HashMap<String, String>,
    values: HashMap<String, String>,
) -> Result<Option<Record>, Error> {
    if fields.is_empty() {
        return Ok(None);
    }
    let version = fields.remove(keys::VERSION).and_then(|version| keys::version(&version));
    let version = version.ok_or_else(|| corrupt(doing, "a trace without a version"))?;
    let outbox = fields.extract_if(|field, _| keys::is_beside(field));
    let outbox = outbox.filter_map(|(field, text)| Some((keys::outbox_key(&field)?, text))).collect();
    Ok(Some(Record { version, fields, values, outbox }))
}

pub(super) fn trace(doing: &'static str, text: &str) -> Result<TraceId, Error> {
    text.parse().map_err(|_| corrupt(doing, text))
}

/// Traces with their scores, from a sorted set. Milliseconds are whole numbers far below 2^53.
pub(super) fn scored(doing: &'static str, value: Value) -> Result<Vec<(TraceId, Timestamp)>, Error> {
    let pairs: Vec<(String, String)> = decode(doing, value)?;
    let parse = |(member, score): (String, String)| {
        let millis = score.parse().map_err(|_| corrupt(doing, &score))?;
        Ok((trace(doing, &member)?, Timestamp::from_millis(millis)))
    };
    pairs.into_iter().map(parse).collect()
}
