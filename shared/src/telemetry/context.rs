//! W3C trace context: which span a message comes from. Parsed strictly; an invalid header counts as none.

use super::span::is_on;
use crate::{bus::Headers, id::TraceId};

const TRACEPARENT: &str = "traceparent";

/// The span id of something in a trace: a context by its `child_id`, an attempt by `child_id.attempt`. The
/// same on every machine and version (FNV-1a, mixed), and never 0, which means no span.
pub fn span_id(trace: TraceId, what: &str) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in trace.as_u128().to_be_bytes().iter().chain(what.as_bytes()) {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    // FNV puts the last bytes into the low bits; backends shard by the high ones.
    hash = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash ^ (hash >> 29)).max(1)
}

/// The headers of a message, so that its receiver knows which span it comes from. None if spans are not exported: they
/// cost as much as a small message.
pub fn headers(trace: TraceId, span: u64) -> Headers {
    if is_on() { header(trace, span) } else { Headers::default() }
}

fn header(trace: TraceId, span: u64) -> Headers {
    Headers::from([(TRACEPARENT.to_owned(), format!("00-{trace}-{span:016x}-01"))])
}

/// The trace and span a message comes from, if its header is valid.
pub fn parent(headers: &Headers) -> Option<(TraceId, u64)> {
    let name = |name: &&String| name.eq_ignore_ascii_case(TRACEPARENT);
    let text = headers.keys().find(name).and_then(|name| headers.get(name))?;
    let mut parts = text.split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let hex = |text: &str, length: usize| {
        text.len() == length && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    // A later version may add parts; version 00 has none, and `ff` is not a version.
    let versioned = hex(version, 2) && version != "ff" && (version != "00" || parts.next().is_none());
    if !versioned || !hex(span, 16) || !hex(flags, 2) {
        return None;
    }
    let span = u64::from_str_radix(span, 16).ok().filter(|span| *span != 0)?;
    Some((trace.parse().ok()?, span))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace() -> TraceId {
        "0af7651916cd43dd8448eb211c80319c".parse().unwrap()
    }

    #[test]
    fn x2_what_was_sent_is_read_back_and_junk_is_no_parent() {
        let sent = header(trace(), 0x00f0_67aa_0ba9_02b7);
        assert_eq!(sent["traceparent"], "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01");
        assert_eq!(parent(&sent), Some((trace(), 0x00f0_67aa_0ba9_02b7)));
        let good = [
            "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-00",
            "cc-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01-what-comes-later",
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
        let read = |text: &str| parent(&Headers::from([("Traceparent".into(), text.into())]));
        good.iter().for_each(|text| assert!(read(text).is_some(), "{text}"));
        junk.iter().for_each(|text| assert_eq!(read(text), None, "{text}"));
        assert_eq!(parent(&Headers::new()), None);
    }

    #[test]
    fn x4_a_span_is_named_alike_by_everyone_and_differs_from_its_neighbours() {
        assert_eq!(span_id(trace(), "root"), 0x1adc_41d5_25fa_cabc, "the same for ever");
        let other = TraceId::from_u128(trace().as_u128() + 1).unwrap();
        let mut ids: Vec<u64> = (0..10_000).map(|n| span_id(trace(), &format!("a-{n}"))).collect();
        ids.extend([span_id(trace(), ""), span_id(other, "a-1"), span_id(trace(), "root")]);
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), all);
        assert!(!ids.contains(&0));
    }
}
