//! Finds the newest messages of a log. The cost depends on their number only, and not on the size
//! of the log.

use domain::subject::Filter;

use super::{
    super::{
        message::{Head, Position},
        topology::stream_of_all,
    },
    Error, Nats, failed,
    read::{NEXT_WITHIN, TRIES, stream_info},
    timestamp,
};

impl Nats {
    pub(in super::super) async fn end(&self, filter: &Filter) -> Result<Position, Error> {
        let stream = self.stream(stream_of_all(std::slice::from_ref(filter))?);
        let info = stream_info(self, &stream).await?;
        Ok(Position { log: timestamp(info.created).millis(), sequence: info.state.last_sequence })
    }

    /// Reports messages up to the one that is now the last.
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
        let mut heads = self.heads(filter, sequence + 1).await?;
        let (mut reached, mut tries) = (sequence, 0);
        while reached < last {
            match tokio::time::timeout(NEXT_WITHIN, heads.next()).await {
                Ok(head) => {
                    let head = head?;
                    (reached, tries) = (head.sequence, 0);
                    each(head);
                }
                Err(_) => {
                    // The messages may have been purged meanwhile.
                    let now = self.last_raw(filter).await?.map_or(0, |last| last.sequence);
                    if now < heads.at() {
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
