//! W3C trace context: the span that a message comes from, and the flag that its trace is exported.
//! Headers are parsed strictly, and invalid ones are ignored.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::id::TraceId;

/// The W3C trace context and similar headers of a message. They are few and short.
pub type Headers = BTreeMap<String, String>;

const TRACEPARENT: &str = "traceparent";
/// The flag of a trace that is exported.
const SAMPLED: u8 = 1;

/// The span that a message comes from, according to its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    pub trace_id: TraceId,
    pub span: SpanId,
    /// True if the sender exports its trace.
    pub sampled: bool,
}

/// The id of a span: 16 hex digits in JSON.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(into = "String", try_from = "String")]
#[schemars(with = "String")]
pub struct SpanId(u64);

impl SpanId {
    /// Returns the id of a span in a trace: of a context by its `child_id`, of an attempt by
    /// `child_id.attempt`. The id is the same on every machine and in every version (FNV-1a,
    /// mixed). It is never 0, which means no span.
    pub fn of(trace: TraceId, what: &str) -> Self {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for byte in trace.as_u128().to_be_bytes().iter().chain(what.as_bytes()) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        // FNV puts the last bytes into the low bits, and telemetry backends shard by the high ones.
        hash = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        SpanId((hash ^ (hash >> 29)).max(1))
    }

    pub fn as_u64(self) -> u64 {
        self.0
    }
}

impl From<SpanId> for String {
    fn from(id: SpanId) -> Self {
        format!("{:016x}", id.0)
    }
}

impl TryFrom<String> for SpanId {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        if !is_hex(&text, 16) {
            return Err("a span id is 16 lowercase hex digits");
        }
        let id = u64::from_str_radix(&text, 16).ok().filter(|id| *id != 0);
        id.map(SpanId).ok_or("a span id is not zero")
    }
}

fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// Returns the headers of a message of an exported trace; they name the span that the message comes
/// from. Messages of other traces have no headers, because headers cost as much as a small message.
pub fn headers(trace: TraceId, span: SpanId) -> Headers {
    Headers::from([(TRACEPARENT.to_owned(), traceparent(trace, span))])
}

/// Returns the header's value. Calls over HTTP and programs use it too.
pub fn traceparent(trace: TraceId, span: SpanId) -> String {
    format!("00-{trace}-{:016x}-{SAMPLED:02x}", span.0)
}

/// Returns the span that a message comes from, if its header is valid.
pub fn caller(headers: &Headers) -> Option<Caller> {
    let name = |name: &&String| name.eq_ignore_ascii_case(TRACEPARENT);
    let text = headers.keys().find(name).and_then(|name| headers.get(name))?;
    let mut parts = text.split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    // A later version may add parts. Version 00 has no more, and `ff` is not a version.
    let versioned = is_hex(version, 2) && version != "ff" && (version != "00" || parts.next().is_none());
    if !versioned || !is_hex(flags, 2) {
        return None;
    }
    let sampled = u8::from_str_radix(flags, 16).ok()? & SAMPLED != 0;
    Some(Caller { trace_id: trace.parse().ok()?, span: SpanId::try_from(span.to_owned()).ok()?, sampled })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace() -> TraceId {
        "0af7651916cd43dd8448eb211c80319c".parse().unwrap()
    }

    #[test]
    fn x2_sent_headers_are_read_back_and_invalid_ones_are_ignored() {
        let span = SpanId(0x00f0_67aa_0ba9_02b7);
        let sent = headers(trace(), span);
        assert_eq!(sent["traceparent"], "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01");
        assert_eq!(caller(&sent), Some(Caller { trace_id: trace(), span, sampled: true }));
        let good = [
            ("00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-00", false),
            ("00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-03", true),
            ("cc-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01-what-comes-later", true),
        ];
        let junk = [
            "",
            "junk",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7",
            "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01-",
            "00-0AF7651916CD43DD8448EB211C80319C-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "ff-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01",
            "00-0af7651916cd43dd8448eb211c80319c-+0f067aa0ba902b7-01",
        ];
        let read = |text: &str| caller(&Headers::from([("Traceparent".into(), text.into())]));
        for (text, sampled) in good {
            assert_eq!(read(text).map(|caller| caller.sampled), Some(sampled), "{text}");
        }
        junk.iter().for_each(|text| assert_eq!(read(text), None, "{text}"));
        assert_eq!(caller(&Headers::new()), None);
    }

    #[test]
    fn x4_a_span_is_named_alike_by_everyone_and_differs_from_its_neighbours() {
        assert_eq!(SpanId::of(trace(), "root"), SpanId(0x1adc_41d5_25fa_cabc), "the id must never change");
        let other = TraceId::from_u128(trace().as_u128() + 1).unwrap();
        let mut ids: Vec<SpanId> = (0..10_000).map(|n| SpanId::of(trace(), &format!("a-{n}"))).collect();
        ids.extend([SpanId::of(trace(), ""), SpanId::of(other, "a-1"), SpanId::of(trace(), "root")]);
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), all);
        assert!(!ids.contains(&SpanId(0)));
    }

    #[test]
    fn x4_a_span_id_is_sixteen_digits_in_json() {
        let id = SpanId(0x0af);
        assert_eq!(serde_json::to_string(&id).unwrap(), "\"00000000000000af\"");
        assert_eq!(serde_json::from_str::<SpanId>("\"00000000000000af\"").unwrap(), id);
        for junk in ["\"\"", "\"0000000000000000\"", "\"00000000000000AF\"", "\"+0000000000000af\"", "7"] {
            assert!(serde_json::from_str::<SpanId>(junk).is_err(), "{junk}");
        }
    }
}
