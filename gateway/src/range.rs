//! The part of a file that a `Range` header asks for (RFC 9110): one range of bytes. Several ranges
//! and invalid headers are answered with the whole file, as the RFC allows.

use std::ops::Range;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RequestedRange {
    All,
    Part(Range<usize>),
    /// It begins after the end of the file.
    Nothing,
}

/// The range that the header asks for, in a file of `size` bytes.
pub(crate) fn wanted(header: &str, size: usize) -> RequestedRange {
    let Some(spec) = header.trim().strip_prefix("bytes=") else { return RequestedRange::All };
    let Some((first, last)) = spec.trim().split_once('-') else { return RequestedRange::All };
    // Only digits: `parse` would accept a sign too. A number that overflows is after every end.
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse().unwrap_or(usize::MAX))
    };
    match (first.is_empty(), number(first), last.is_empty(), number(last)) {
        (true, _, _, Some(0)) => RequestedRange::Nothing,
        (true, _, _, Some(_)) if size == 0 => RequestedRange::Nothing,
        (true, _, _, Some(suffix)) => RequestedRange::Part(size.saturating_sub(suffix)..size),
        (_, Some(first), true, _) if first < size => RequestedRange::Part(first..size),
        (_, Some(first), false, Some(last)) if last < first => RequestedRange::All,
        (_, Some(first), false, Some(last)) if first < size => {
            RequestedRange::Part(first..last.saturating_add(1).min(size))
        }
        (_, Some(_), true, _) | (_, Some(_), false, Some(_)) => RequestedRange::Nothing,
        (_, _, _, _) => RequestedRange::All,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_is_cut_to_the_file() {
        for (header, expected) in [
            ("bytes=0-0", RequestedRange::Part(0..1)),
            ("bytes=2-4", RequestedRange::Part(2..5)),
            ("bytes=2-", RequestedRange::Part(2..10)),
            ("bytes=-3", RequestedRange::Part(7..10)),
            ("bytes=-30", RequestedRange::Part(0..10)),
            ("bytes=8-99999999999999999999999", RequestedRange::Part(8..10)),
            ("bytes=10-", RequestedRange::Nothing),
            ("bytes=99999999999999999999999-", RequestedRange::Nothing),
            ("bytes=-0", RequestedRange::Nothing),
            ("bytes=4-2", RequestedRange::All),
            ("bytes=0-1,3-4", RequestedRange::All),
            ("bytes=+1-2", RequestedRange::All),
            ("bytes=-", RequestedRange::All),
            ("bytes=a-b", RequestedRange::All),
            ("lines=0-1", RequestedRange::All),
            ("", RequestedRange::All),
        ] {
            assert_eq!(wanted(header, 10), expected, "{header}");
        }
        assert_eq!(wanted("bytes=0-", 0), RequestedRange::Nothing);
        assert_eq!(wanted("bytes=-1", 0), RequestedRange::Nothing);
    }
}
