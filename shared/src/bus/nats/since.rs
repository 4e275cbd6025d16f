//! What came to a log lately: found by its new messages, whatever it has besides.

use super::{
    super::{
        message::{Head, Position, Stored},
        topology::stream_of_all,
    },
    Error, From, Nats, failed,
    follow::{What, stream_info},
    read::{NEXT_WITHIN, TRIES},
    timestamp,
};
use crate::subject::Filter;

impl Nats {
    pub(in super::super) async fn end(&self, filter: &Filter) -> Result<Position, Error> {
        let stream = self.stream(stream_of_all(std::slice::from_ref(filter))?);
        let info = stream_info(self, &stream).await?;
        Ok(Position { log: timestamp(info.created).millis(), sequence: info.state.last_sequence })
    }

    /// Up to the message that is now the last.
    pub(in super::super) async fn each_since(
        &self,
        filter: &Filter,
        sequence: u64,
        each: &mut (dyn FnMut(Head) + Send),
    ) -> Result<(), Error> {
        let last = self.last_raw(filter).await?.map_or(0, |last| last.sequence);
        if last <= sequence {
            return Ok(());
        }
        let from = From::Sequence(sequence + 1);
        let mut follow = self.follow_what(std::slice::from_ref(filter), from, What::Headers).await?;
        let (mut reached, mut tries) = (sequence, 0);
        while reached < last {
            match tokio::time::timeout(NEXT_WITHIN, follow.next()).await {
                Ok(stored) => {
                    let Stored { subject, id, sequence, .. } = stored?;
                    (reached, tries) = (sequence, 0);
                    each(Head { subject, sequence, id });
                }
                Err(_) => {
                    // It may have been purged meanwhile.
                    let now = self.last_raw(filter).await?.map_or(0, |last| last.sequence);
                    if now < follow.at() {
                        break;
                    }
                    tries += 1;
                    if tries > TRIES {
                        let doing = format!("listing the messages of `{filter}` since {sequence}");
                        return Err(failed(doing, &"the server sent fewer messages than it has"));
                    }
                }
            }
        }
        Ok(())
    }
}
