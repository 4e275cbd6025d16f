//! Bounds the memory that an answer takes in a library: the bytes of a frame, and its JSON values,
//! each of which takes many times its bytes. A frame is a line, an event or a whole body. This
//! module parses no JSON: it only follows quoted texts and counts the separators outside of them.

/// The most bytes of a frame: the size of the largest answer of a model.
pub(crate) const MAX_FRAME_BYTES: usize = 4 << 20;
/// The most values of a frame. A small object of a few bytes takes about 600 bytes of memory.
const MAX_FRAME_VALUES: usize = 1 << 16;
/// The most bytes of an answer, which are never in memory at once. A model's answer of
/// [`MAX_FRAME_BYTES`] in small pieces has fewer.
const MAX_ANSWER_BYTES: u64 = 1 << 30;

/// The kind of frames in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A frame ends with a line feed.
    Lines,
    /// A frame ends with an empty line, as server-sent events do.
    Events,
    /// The whole answer is one frame.
    Whole,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TooMuch {
    #[error("a part of the answer is larger than {} MiB", MAX_FRAME_BYTES >> 20)]
    Bytes,
    #[error("a part of the answer has more than {MAX_FRAME_VALUES} values")]
    Values,
    #[error("the answer is larger than {} MiB", MAX_ANSWER_BYTES >> 20)]
    Answer,
}

/// The frames that ended in a piece of an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct EndedFrames {
    pub(super) frames: usize,
    /// The number of bytes of the piece that belong to ended frames.
    pub(super) bytes: usize,
}

#[derive(Debug)]
pub(super) struct Frames {
    shape: Shape,
    /// True if the answer as a whole is bounded. A stream that is open for days is not bounded.
    is_bounded: bool,
    answer_bytes: u64,
    bytes: usize,
    values: usize,
    line_bytes: usize,
    last: u8,
    in_text: bool,
    escaped: bool,
}

impl Frames {
    pub(super) fn new(shape: Shape, is_bounded: bool) -> Self {
        Frames {
            shape,
            is_bounded,
            answer_bytes: 0,
            bytes: 0,
            values: 0,
            line_bytes: 0,
            last: 0,
            in_text: false,
            escaped: false,
        }
    }

    /// Counts the next piece of an answer.
    pub(super) fn take(&mut self, piece: &[u8]) -> Result<EndedFrames, TooMuch> {
        self.answer_bytes += u64::try_from(piece.len()).unwrap_or(u64::MAX);
        if self.is_bounded && self.answer_bytes > MAX_ANSWER_BYTES {
            return Err(TooMuch::Answer);
        }
        let mut ended = EndedFrames::default();
        for (at, byte) in piece.iter().copied().enumerate() {
            self.bytes += 1;
            if self.bytes > MAX_FRAME_BYTES {
                return Err(TooMuch::Bytes);
            }
            if byte == b'\n' || byte == b'\r' {
                if self.ends_frame(byte) {
                    (self.bytes, self.values) = (0, 0);
                    ended = EndedFrames { frames: ended.frames + 1, bytes: at + 1 };
                }
                // A text in JSON contains no line feed.
                (self.line_bytes, self.in_text, self.escaped) = (0, false, false);
            } else {
                self.line_bytes += 1;
                self.count(byte)?;
            }
            self.last = byte;
        }
        Ok(ended)
    }

    fn ends_frame(&self, byte: u8) -> bool {
        match self.shape {
            Shape::Lines => byte == b'\n',
            // An empty line ends an event. A line feed after a carriage return belongs to the same
            // line end.
            Shape::Events => self.line_bytes == 0 && !(byte == b'\n' && self.last == b'\r'),
            Shape::Whole => false,
        }
    }

    fn count(&mut self, byte: u8) -> Result<(), TooMuch> {
        if self.in_text {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_text = false,
                _ => {}
            }
            return Ok(());
        }
        match byte {
            b'"' => self.in_text = true,
            b',' | b':' | b'[' | b'{' => self.values += 1,
            _ => {}
        }
        if self.values > MAX_FRAME_VALUES { Err(TooMuch::Values) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(shape: Shape, text: &str) -> Result<usize, TooMuch> {
        let mut frames = Frames::new(shape, true);
        // The count is the same for pieces of any size.
        let whole = Frames::new(shape, true).take(text.as_bytes()).map(|ended| ended.frames);
        let mut ended = 0;
        for piece in text.as_bytes().chunks(7) {
            match frames.take(piece) {
                Ok(more) => ended += more.frames,
                Err(much) => {
                    assert_eq!(whole, Err(much));
                    return Err(much);
                }
            }
        }
        assert_eq!(whole, Ok(ended));
        Ok(ended)
    }

    #[test]
    fn s5_a_frame_ends_where_a_library_ends_it() {
        for (shape, text, ended) in [
            (Shape::Lines, "a\nb\r\nc\rd", 2),
            (Shape::Events, "data: a\n\ndata: b\r\n\r\ndata: c\r\rdata: d\n", 3),
            (Shape::Events, "data: a\ndata: b\n", 0),
            (Shape::Events, ":\r\n\r\n", 1),
            (Shape::Whole, "a\n\nb\n\n", 0),
        ] {
            assert_eq!(take(shape, text), Ok(ended), "{text:?}");
        }
    }

    #[test]
    fn s5_a_frame_has_bounded_bytes_and_values() {
        let long = "x".repeat(MAX_FRAME_BYTES - 1);
        assert_eq!(take(Shape::Lines, &format!("{long}\n{long}\n")), Ok(2));
        assert_eq!(take(Shape::Lines, &format!("{long}xx")), Err(TooMuch::Bytes));
        assert_eq!(
            take(Shape::Events, &format!("data: {}\n", "x".repeat(993)).repeat(MAX_FRAME_BYTES / 1000 + 1)),
            Err(TooMuch::Bytes)
        );
        let many = "[],".repeat(MAX_FRAME_VALUES / 2);
        assert_eq!(take(Shape::Events, &format!("data: {many}1")), Err(TooMuch::Values));
        let ended = Frames::new(Shape::Lines, true).take(b"a\nbc\nd");
        assert_eq!(ended, Ok(EndedFrames { frames: 2, bytes: 5 }));
        // In a text these are plain characters, even after an escaped quote.
        assert_eq!(take(Shape::Events, &format!("data: \"\\\" {many}\"")), Ok(0));
        assert_eq!(take(Shape::Events, &format!("data: \"\\\\\" {many}")), Err(TooMuch::Values));
        assert_eq!(
            take(Shape::Lines, &format!("\"\n{many}[")),
            Err(TooMuch::Values),
            "a text ends with its line"
        );
    }
}
