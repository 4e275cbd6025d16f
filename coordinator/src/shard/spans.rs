//! Merges the spans of contexts that ended in one turn into few messages: one message each would
//! cost more than a tenth of a job.

use bus::{Outgoing, PublishError, PublishReceipt};
use bytes::Bytes;
use domain::subject::Subject;

/// The most bytes of one merged message.
const MAX_BYTES: usize = 256 << 10;

/// The place of each message of a turn after the merge.
#[derive(Debug, Default)]
pub(super) struct MergedMessages {
    /// For each message, in order, the index of the message that contains it; empty if nothing was
    /// merged.
    places: Vec<usize>,
}

impl MergedMessages {
    /// The result of each message before the merge.
    pub(super) fn results(
        &self,
        sent: Vec<Result<PublishReceipt, PublishError>>,
    ) -> Vec<Result<PublishReceipt, PublishError>> {
        if self.places.is_empty() {
            return sent;
        }
        self.places.iter().map(|place| sent[*place].clone()).collect()
    }
}

/// Merges messages with spans. A merged message has no id: if it is sent again, its spans are
/// exported again, under the same ids (X6).
pub(super) fn merge(messages: Vec<Outgoing>) -> (Vec<Outgoing>, MergedMessages) {
    let has_spans = |message: &&Outgoing| matches!(message.subject, Subject::Span(..));
    if messages.iter().filter(has_spans).count() < 2 {
        return (messages, MergedMessages::default());
    }
    let (mut sent, mut places) = (Vec::with_capacity(messages.len()), Vec::with_capacity(messages.len()));
    let mut open: Option<(usize, Vec<u8>)> = None;
    for message in messages {
        if !has_spans(&&message) {
            places.push(sent.len());
            sent.push(message);
            continue;
        }
        if let Some((place, payload)) = &mut open
            && payload.len() + message.payload.len() <= MAX_BYTES
        {
            // Both payloads are JSON lists.
            payload.pop();
            payload.push(b',');
            payload.extend_from_slice(&message.payload[1..]);
            places.push(*place);
            continue;
        }
        close(&mut sent, open.take());
        places.push(sent.len());
        open = Some((sent.len(), message.payload.to_vec()));
        sent.push(message);
    }
    close(&mut sent, open);
    (sent, MergedMessages { places })
}

fn close(sent: &mut [Outgoing], open: Option<(usize, Vec<u8>)>) {
    if let Some((place, payload)) = open
        && payload.len() > sent[place].payload.len()
    {
        sent[place].payload = Bytes::from(payload);
        sent[place].id = None;
    }
}

#[cfg(test)]
mod tests {
    use domain::{ChildId, TraceId, span::Headers};

    use super::*;

    fn message(subject: Subject, payload: &str) -> Outgoing {
        let payload = Bytes::copy_from_slice(payload.as_bytes());
        Outgoing { subject, id: Some("id".into()), headers: Headers::default(), payload, expect_last: None }
    }

    fn spans(payload: &str) -> Outgoing {
        message(Subject::Span(TraceId::from_u128(7).unwrap(), ChildId::whole_trace()), payload)
    }

    fn payloads(messages: &[Outgoing]) -> Vec<&str> {
        messages.iter().map(|message| std::str::from_utf8(&message.payload).unwrap()).collect()
    }

    #[test]
    fn x6_spans_of_one_turn_are_one_message_and_each_commit_knows_whether_its_own_are_stored() {
        let (sent, merged) = merge(vec![
            message(Subject::Spawn, "{}"),
            spans("[1,2]"),
            message(Subject::Graph, "{}"),
            spans("[3]"),
        ]);
        assert_eq!(payloads(&sent), ["{}", "[1,2,3]", "{}"]);
        assert_eq!(sent.iter().map(|message| message.id.is_some()).collect::<Vec<_>>(), [true, false, true]);
        let stored = |sequence| Ok(PublishReceipt { sequence, duplicate: false });
        let results = merged.results(vec![stored(1), Err(PublishError::Unacknowledged), stored(2)]);
        let failed: Vec<bool> = results.iter().map(Result::is_err).collect();
        assert_eq!(failed, [false, true, false, true]);
    }

    #[test]
    fn x6_one_message_is_left_as_it_is_and_none_becomes_too_large() {
        let (sent, merged) = merge(vec![spans("[1]")]);
        assert!(sent[0].id.is_some() && merged.places.is_empty());
        let large = format!("[\"{}\"]", "x".repeat(MAX_BYTES / 2));
        let (sent, merged) = merge(vec![spans(&large), spans(&large), spans("[1]")]);
        assert_eq!(
            sent.iter().map(|message| message.payload.len()).collect::<Vec<_>>(),
            [large.len(), large.len() + 2]
        );
        assert_eq!(merged.places, [0, 1, 1]);
    }
}
