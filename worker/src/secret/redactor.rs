//! Replaces secret values by their names, `[NAME]`, in texts that go to models, journals, logs and
//! stores. It finds a value in its plain form, in the forms of JSON, URLs, base64 and hexadecimal
//! digits, and across several lines. It can't find a value that was encoded in another way, or cut
//! to pieces. So it guards against mistakes, and not against a program that gives a value away on
//! purpose.

use std::{borrow::Cow, collections::BTreeMap, fmt, sync::Arc};

use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::Value;

/// A shorter part of a value in base64 would occur in unrelated texts.
const MIN_ENCODED_BYTES: usize = 8;

#[derive(Clone, Default)]
pub(crate) struct Redactor(Option<Arc<Forms>>);

struct Forms {
    finds: AhoCorasick,
    /// The replacements, in the order of the forms.
    names: Vec<String>,
    longest: usize,
    /// The forms themselves, in order.
    sorted: Vec<Vec<u8>>,
}

impl Redactor {
    /// A redactor for these names and values.
    pub(crate) fn new<N: AsRef<str>, V: AsRef<str>>(secrets: impl IntoIterator<Item = (N, V)>) -> Self {
        let mut forms: BTreeMap<Vec<u8>, String> = BTreeMap::new();
        for (name, value) in secrets {
            for form in forms_of(value.as_ref()) {
                forms.entry(form).or_insert_with(|| format!("[{}]", name.as_ref()));
            }
        }
        let longest = forms.keys().map(Vec::len).max();
        let Some(longest) = longest else { return Redactor(None) };
        // The longest match at each place is taken, since one value may be a part of another.
        let finds = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(forms.keys());
        let finds = finds.expect("values have at most a few thousand bytes");
        let (sorted, names) = forms.into_iter().unzip();
        Redactor(Some(Arc::new(Forms { finds, names, longest, sorted })))
    }

    pub(crate) fn text(&self, text: String) -> String {
        match self.0.as_ref().and_then(|forms| forms.redacted(text.as_bytes())) {
            Some(redacted) => String::from_utf8_lossy(&redacted).into_owned(),
            None => text,
        }
    }

    pub(crate) fn bytes<'a>(&self, bytes: impl Into<Cow<'a, [u8]>>) -> Cow<'a, [u8]> {
        let bytes = bytes.into();
        self.0.as_ref().and_then(|forms| forms.redacted(&bytes)).map_or(bytes, Cow::Owned)
    }

    /// Redacts all texts and numbers of a value.
    pub(crate) fn value(&self, mut value: Value) -> Value {
        self.redact(&mut value, true);
        value
    }

    /// Redacts a line of a program. A line of JSON stays JSON. It is parsed, since escapes that
    /// JSON allows and does not need may hide a value from a search in the bytes.
    pub(crate) fn line(&self, line: Vec<u8>) -> Vec<u8> {
        let Some(forms) = &self.0 else { return line };
        if !forms.may_be_in(&line) {
            return line;
        }
        let Ok(mut value) = serde_json::from_slice::<Value>(&line) else {
            return self.bytes(line).into_owned();
        };
        if !self.redact(&mut value, true) {
            return line;
        }
        let mut line = value.to_string().into_bytes();
        line.push(b'\n');
        line
    }

    /// Redacts a message in JSON. Only its texts can contain a value, since its numbers come from
    /// the worker.
    pub(crate) fn message(&self, message: Vec<u8>) -> Vec<u8> {
        let Some(forms) = &self.0 else { return message };
        if !forms.may_be_in(&message) {
            return message;
        }
        let Ok(mut value) = serde_json::from_slice::<Value>(&message) else {
            return self.bytes(message).into_owned();
        };
        if self.redact(&mut value, false) { value.to_string().into_bytes() } else { message }
    }

    /// Redacts the texts of a value, and with `numbers` its numbers too. Returns true if anything
    /// was redacted.
    fn redact(&self, value: &mut Value, numbers: bool) -> bool {
        match value {
            Value::String(text) => {
                let found = self.finds_in(text);
                *text = self.text(std::mem::take(text));
                found
            }
            Value::Number(number) => {
                let text = number.to_string();
                let found = numbers && self.finds_in(&text);
                if found {
                    *value = Value::String(self.text(text));
                }
                found
            }
            Value::Array(items) => {
                let mut found = false;
                for item in items {
                    found |= self.redact(item, numbers);
                }
                found
            }
            Value::Object(fields) => {
                let mut found = false;
                let redacted = std::mem::take(fields).into_iter().map(|(name, mut field)| {
                    found |= self.redact(&mut field, numbers) | self.finds_in(&name);
                    (self.text(name), field)
                });
                *fields = redacted.collect();
                found
            }
            Value::Null | Value::Bool(_) => false,
        }
    }

    pub(crate) fn finds_in(&self, text: &str) -> bool {
        self.0.as_ref().is_some_and(|forms| forms.are_in(text.as_bytes()))
    }

    /// The bytes of the longest form. A cut text may begin or end with a part of a form of up to
    /// this length.
    pub(crate) fn longest(&self) -> usize {
        self.0.as_ref().map_or(0, |forms| forms.longest)
    }

    /// Returns true if there are no values to find.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The length of the part of a text that can be shown now. Its end may be the beginning of a
    /// value, until more of the text is known.
    pub(crate) fn shown(&self, text: &str) -> usize {
        let Some(forms) = &self.0 else { return text.len() };
        let from = text.len().saturating_sub(forms.longest);
        let mut places = (from..text.len()).filter(|at| text.is_char_boundary(*at));
        let begins = places.find(|at| forms.begins_with(&text.as_bytes()[*at..])).unwrap_or(text.len());
        // A whole value must not be cut either.
        let cut = forms.finds.find_iter(text).find(|found| found.start() < begins && begins < found.end());
        cut.map_or(begins, |found| found.start())
    }

    /// Redacts the end of a text. If the text `is_cut`, its beginning is removed, since that may be
    /// the rest of a value.
    pub(crate) fn tail(&self, bytes: &[u8], is_cut: bool) -> String {
        let mut text = self.text(String::from_utf8_lossy(bytes).into_owned());
        if is_cut {
            text.drain(..text.ceil_char_boundary(self.longest()));
        }
        text
    }
}

impl Forms {
    /// Returns true if JSON may contain a value: a backslash may hide one.
    fn may_be_in(&self, json: &[u8]) -> bool {
        json.contains(&b'\\') || self.are_in(json)
    }

    fn are_in(&self, bytes: &[u8]) -> bool {
        self.finds.is_match(bytes) || on_one_line(bytes).is_some_and(|line| self.finds.is_match(&line))
    }

    /// Returns true if a form begins with these bytes.
    fn begins_with(&self, bytes: &[u8]) -> bool {
        let at = self.sorted.partition_point(|form| form.as_slice() < bytes);
        self.sorted.get(at).is_some_and(|form| form.starts_with(bytes))
    }

    /// Returns `None` if there is nothing to redact.
    fn redacted(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let found = self.finds.is_match(bytes).then(|| self.finds.replace_all_bytes(bytes, &self.names));
        let bytes = found.as_deref().unwrap_or(bytes);
        let line = on_one_line(bytes).filter(|line| self.finds.is_match(line));
        let Some(line) = line else { return found };
        let places: Vec<usize> =
            bytes.iter().enumerate().filter(|(_, byte)| !is_break(**byte)).map(|(at, _)| at).collect();
        let (mut redacted, mut done) = (Vec::with_capacity(bytes.len()), 0);
        for found in self.finds.find_iter(&line) {
            redacted.extend_from_slice(&bytes[done..places[found.start()]]);
            redacted.extend_from_slice(self.names[found.pattern().as_usize()].as_bytes());
            done = places[found.end() - 1] + 1;
        }
        redacted.extend_from_slice(&bytes[done..]);
        Some(redacted)
    }
}

fn is_break(byte: u8) -> bool {
    byte == b'\n' || byte == b'\r'
}

/// Several lines without their breaks, since `base64` breaks a long value into lines; `None` for a
/// single line.
fn on_one_line(bytes: &[u8]) -> Option<Vec<u8>> {
    let broken = bytes.iter().any(|byte| is_break(*byte));
    broken.then(|| bytes.iter().copied().filter(|byte| !is_break(*byte)).collect())
}

/// The forms in which a value may occur in a text.
fn forms_of(value: &str) -> Vec<Vec<u8>> {
    let quoted = Value::from(value).to_string();
    let in_json = &quoted[1..quoted.len() - 1];
    let in_url = encoded(value);
    let hex: String = value.bytes().map(|byte| format!("{byte:02x}")).collect();
    let mut forms = vec![
        value.to_owned(),
        in_json.to_owned(),
        in_json.replace('/', "\\/"),
        in_url.clone(),
        lower_escapes(&in_url),
        in_url.replace("%20", "+"),
        hex.to_uppercase(),
        hex,
    ];
    forms.extend(in_base64(value.as_bytes()).into_iter().filter(|form| form.len() >= MIN_ENCODED_BYTES));
    forms.retain(|form| !form.is_empty());
    forms.into_iter().map(String::into_bytes).collect()
}

/// A value as a part of a URL: every character with a meaning there is escaped.
pub(super) fn encoded(value: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let byte = |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    value.bytes().map(byte).collect()
}

fn lower_escapes(text: &str) -> String {
    let mut parts = text.split('%');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| {
        let (digits, rest) = part.split_at(2.min(part.len()));
        format!("{all}%{}{rest}", digits.to_lowercase())
    })
}

/// The forms of a value in base64, in both alphabets and for each position in the encoded text. The
/// characters that also depend on neighbouring bytes are left out.
fn in_base64(value: &[u8]) -> Vec<String> {
    const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut forms = Vec::new();
    for before in 0..3 {
        let mut bytes = vec![0; before];
        bytes.extend_from_slice(value);
        let bit = |at: usize| (bytes[at / 8] >> (7 - at % 8)) & 1;
        let digit = |first: usize| (first..first + 6).fold(0, |digit, at| (digit << 1) | bit(at));
        // From the first character without a bit of the bytes before, to the last one without a bit
        // of the bytes behind.
        let whole = (before * 8).div_ceil(6)..bytes.len() * 8 / 6;
        let form: String = whole.map(|at| char::from(STANDARD[usize::from(digit(at * 6))])).collect();
        forms.push(form.replace('+', "-").replace('/', "_"));
        forms.push(form);
    }
    forms
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.iter().flat_map(|forms| &forms.names).collect::<std::collections::BTreeSet<_>>();
        f.debug_set().entries(names).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: &str = "s3cr\"t/v+lue &%\n";

    fn redactor() -> Redactor {
        Redactor::new([
            ("A_KEY", VALUE),
            ("LONGER", "s3cr\"t/v+lue &%\nand more"),
            ("PLAIN", "hunter2hunter2"),
        ])
    }

    #[test]
    fn s8_a_value_is_found_as_json_urls_base64_and_hex_write_it() {
        let escaped = serde_json::to_string(VALUE).unwrap();
        for text in [
            VALUE.to_owned(),
            escaped.clone(),
            escaped.replace('/', "\\/"),
            "s3cr%22t%2Fv%2Blue%20%26%25%0A".into(),
            "s3cr%22t%2fv%2blue%20%26%25%0a".into(),
            "s3cr%22t%2Fv%2Blue+%26%25%0A".into(),
            VALUE.bytes().map(|byte| format!("{byte:02x}")).collect(),
            VALUE.bytes().map(|byte| format!("{byte:02X}")).collect(),
        ] {
            let redacted = redactor().text(format!("before {text} behind"));
            assert!(redacted.contains("[A_KEY]"), "{text}: {redacted}");
            assert!(redacted.starts_with("before ") && redacted.ends_with(" behind"), "{redacted}");
        }
    }

    /// The output of `printf 'user:hunter2hunter2!' | base64`, and with one and two characters less
    /// at the beginning.
    #[test]
    fn s8_a_value_is_found_in_base64_wherever_it_begins() {
        for text in
            ["dXNlcjpodW50ZXIyaHVudGVyMiE=", "c2VyOmh1bnRlcjJodW50ZXIyIQ==", "ZXI6aHVudGVyMmh1bnRlcjIh"]
        {
            let redacted = redactor().text(format!("Basic {text}"));
            assert!(redacted.contains("[PLAIN]"), "{text}: {redacted}");
        }
        let url_safe = Redactor::new([("BYTES", "???>>>???>>>")]);
        for text in ["Pz8_Pj4-Pz8_Pj4-", "Pz8/Pj4+Pz8/Pj4+"] {
            assert_eq!(url_safe.text(text.into()), "[BYTES]", "{text}");
        }
    }

    /// The output of `base64`, `openssl` and `xxd -p` for a value that is longer than a line.
    #[test]
    fn s8_a_value_is_found_over_several_lines() {
        let value = "0123456789".repeat(30);
        let redactor = Redactor::new([("LONG", &value), ("PLAIN", &"hunter2hunter2".to_owned())]);
        let base64 = in_base64(value.as_bytes()).remove(1);
        let hex: String = value.bytes().map(|byte| format!("{byte:02x}")).collect();
        for (text, width, end) in [(&base64, 76, "\n"), (&base64, 64, "\r\n"), (&hex, 60, "\n")] {
            let lines: Vec<&str> =
                text.as_bytes().chunks(width).map(|line| str::from_utf8(line).unwrap()).collect();
            let wrapped = format!("before{end}{}{end}behind hunter2hunter2 é{end}", lines.join(end));
            let expected = format!("before{end}[LONG]{end}behind [PLAIN] é{end}");
            assert_eq!(redactor.text(wrapped.clone()), expected);
            assert!(redactor.finds_in(&wrapped));
            let json = serde_json::to_vec(&Value::from(wrapped)).unwrap();
            let redacted = serde_json::to_vec(&Value::from(expected)).unwrap();
            assert_eq!(redactor.message(json), redacted, "a message has its line breaks as escapes");
        }
        assert_eq!(redactor.text("two\nlines".into()), "two\nlines");
    }

    #[test]
    fn s8_a_message_within_a_message_has_no_value() {
        let inner = Value::from(VALUE).to_string();
        let message = serde_json::to_vec(&serde_json::json!({"text": inner})).unwrap();
        let redacted = String::from_utf8(redactor().message(message)).unwrap();
        assert_eq!(redacted, r#"{"text":"\"[A_KEY]\""}"#);
    }

    #[test]
    fn s8_of_two_values_the_longer_is_found_and_a_name_is_not_searched_again() {
        assert_eq!(redactor().text(format!("{VALUE}and more")), "[LONGER]");
        assert_eq!(redactor().text(format!("{VALUE}and less")), "[A_KEY]and less");
        let nested = Redactor::new([("FIRST_KEY", "value-of-first"), ("OTHER", "FIRST_KEY")]);
        assert_eq!(nested.text("value-of-first FIRST_KEY".into()), "[FIRST_KEY] [OTHER]");
    }

    #[test]
    fn s8_a_line_of_json_has_no_value_behind_escapes_either() {
        let line = br#"{"type": "result", "\u0068unter2hunter2": ["a \u0068unter2hunte\u00722 b"]}"#;
        let redacted = String::from_utf8(redactor().line([&line[..], b"\n"].concat())).unwrap();
        assert_eq!(redacted, "{\"type\":\"result\",\"[PLAIN]\":[\"a [PLAIN] b\"]}\n");
        let other = br#"{"type": "result",  "text": "\u0041"}"#.to_vec();
        assert_eq!(redactor().line(other.clone()), other, "other lines are unchanged");
        let numbers = Redactor::new([("PIN", "12345678")]);
        let line = br#"{"result": 12345678, "other": 1}"#.to_vec();
        assert_eq!(
            numbers.line(line),
            b"{\"result\":\"[PIN]\",\"other\":1}\n",
            "the line is still valid JSON"
        );
        let message = br#"{"at":12345678,"text":"no 12345678"}"#.to_vec();
        assert_eq!(
            numbers.message(message),
            br#"{"at":12345678,"text":"no [PIN]"}"#,
            "a redacted message is still valid"
        );
        assert_eq!(redactor().line(b"\xff hunter2hunter2 \xff\n".to_vec()), b"\xff [PLAIN] \xff\n");
    }

    #[test]
    fn s8_a_cut_text_has_no_rest_of_a_value_and_nothing_shows_one() {
        let redactor = Redactor::new([("PLAIN", "hunter2hunter2")]);
        let kept = format!("ter2hunter2 {} end", "x".repeat(redactor.longest()));
        assert!(!redactor.tail(kept.as_bytes(), true).contains("ter2hunter2"));
        assert_eq!(redactor.tail(kept.as_bytes(), false), kept);
        assert_eq!(format!("{redactor:?}"), r#"{"[PLAIN]"}"#);
        assert_eq!(Redactor::default().text("any".into()), "any");
    }

    /// proves: for pieces of any size, no piece of a text contains a part of a value, and nothing
    /// is lost.
    #[test]
    fn s8_a_value_that_is_split_over_pieces_is_found() {
        let secrets = Redactor::new([
            ("A_KEY", "hunter2hunter2"),
            ("B_KEY", "ünï/cödé key"),
            ("LONG", "hunter2hunter2 and more"),
        ]);
        for text in [
            "it is hunter2hunter2, or hunter2hunt",
            "hunter2hunter2 and more, hunter2hunter2 and less",
            "aHVudGVyMmh1bnRlcjI= and \u{fc}n\u{ef}/c\u{f6}d\u{e9} key and %C3%BCn%C3%AF%2Fc%C3%B6d%C3%A9%20key hunhunter2hunter2ter2",
            "nothing at all",
        ] {
            let whole = secrets.text(text.to_owned());
            for size in 1..text.chars().count() {
                let (mut kept, mut sent) = (String::new(), String::new());
                for piece in text.chars().collect::<Vec<_>>().chunks(size) {
                    kept.extend(piece);
                    let rest = kept.split_off(secrets.shown(&kept));
                    sent.push_str(&secrets.text(std::mem::replace(&mut kept, rest)));
                }
                sent.push_str(&secrets.text(kept));
                assert_eq!(sent, whole, "{size}");
            }
        }
    }
}
