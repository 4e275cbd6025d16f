//! Loads traces: small ones whole and many at once, a large one in pieces. Each piece is a request
//! with its own timeout, and requests of other callers pass in between. A loaded trace is always
//! the state of one moment.
//!
//! Two facts make the pieces of one trace fit together. Its fields and values change only with its
//! version, or with `made` where another commit made the same version. Apart from that, outboxes
//! are cleared, which removes fields and changes no other field. So if version, `made` and both
//! sizes are the same at the end as at the beginning, nothing has changed in between. If as many
//! fields and values were found as exist, they are complete. An outbox that was cleared meanwhile
//! would do no harm, because it would only be sent again, but then the sizes would prove nothing.
//!
//! The pieces do not rely on the promises of `HSCAN`: its cursors are meaningless to another
//! server, and in a cluster another server may answer the next piece.

use std::collections::HashMap;

use domain::TraceId;
use redis::{Cmd, RedisResult, Value};

use super::{
    super::{Error, LoadedRecord, keys},
    Redis, Request, WRONG_TYPE,
    reply::{self, corrupt, decode},
    unavailable,
};

/// Fields of a hash that are read in the first request: those of some 600 contexts.
const WHOLE: usize = 2_000;
/// Fields of one piece: a few milliseconds of the server's time.
const PIECE: usize = 1_000;
/// The target size of a piece in bytes. The size of one piece decides how many fields the next
/// request asks for: a value of the shared store may have a megabyte.
const PIECE_BYTES: usize = 1 << 20;
/// The most reads of a trace that changes meanwhile. The coordinator that changes it owns it and
/// has it in memory, so its jobs are better done there. A last read of all in one answer could time
/// out, and all other requests with it.
const TRIES: usize = 5;

const DOING: &str = "load traces from Redis";

/// A trace at one moment: every change of a trace changes one of these values.
#[derive(PartialEq, Eq)]
struct Moment {
    version: Option<String>,
    made: Option<String>,
    fields: usize,
    values: usize,
}

/// A hash that is read piece by piece.
struct Scan {
    key: String,
    /// How many fields the next request asks for.
    count: usize,
    found: HashMap<String, String>,
}

impl Redis {
    pub(in super::super) async fn load(&self, traces: &[TraceId]) -> Result<Vec<LoadedRecord>, Error> {
        let request = |trace: &TraceId| {
            let home = self.keys.home(*trace);
            let commands = vec![
                Cmd::get(self.keys.counter(home)),
                scan(&self.keys.trace(*trace), 0, WHOLE),
                scan(&self.keys.context(*trace), 0, WHOLE),
            ];
            Request { home, commands }
        };
        let answers = self.send(DOING, traces.iter().map(request).collect()).await?;
        let mut loaded = Vec::with_capacity(traces.len());
        for (trace, answers) in traces.iter().zip(answers) {
            // Each trace is decoded alone: a damaged trace must not prevent the others from being
            // loaded.
            loaded.push(match self.load_one(*trace, answers).await {
                Err(Error::Corrupt { found, .. }) => {
                    let counter = self.counter(*trace).await?;
                    LoadedRecord { record: None, damaged: Some(found), counter }
                }
                one => one?,
            });
        }
        Ok(loaded)
    }

    async fn load_one(
        &self,
        trace: TraceId,
        answers: Vec<RedisResult<Value>>,
    ) -> Result<LoadedRecord, Error> {
        let [counter, fields, values] = exactly(answers)?;
        let counter = reply::counter(counter).map_err(unavailable(DOING))?;
        let [fields, values] = exactly(whole(vec![fields, values])?)?;
        let ((more_fields, fields), (more_values, values)) = (scanned(fields)?, scanned(values)?);
        if more_fields == 0 && more_values == 0 {
            Ok(LoadedRecord { record: reply::record(DOING, fields, values)?, damaged: None, counter })
        } else {
            self.load_large(trace).await
        }
    }

    /// The counter of the partition of a trace.
    async fn counter(&self, trace: TraceId) -> Result<u64, Error> {
        let counters = self.counters(&[self.keys.home(trace)]).await?;
        Ok(counters.first().copied().unwrap_or_default())
    }

    async fn load_large(&self, trace: TraceId) -> Result<LoadedRecord, Error> {
        for _ in 0..TRIES {
            if let Some(loaded) = self.load_in_pieces(trace).await? {
                return Ok(loaded);
            }
        }
        Err(Error::MovedOn { trace_id: trace })
    }

    /// Returns none if the trace changed meanwhile.
    async fn load_in_pieces(&self, trace: TraceId) -> Result<Option<LoadedRecord>, Error> {
        let home = self.keys.home(trace);
        let [head, fields, values] = self.moment(trace);
        let commands = vec![Cmd::get(self.keys.counter(home)), head, fields, values];
        let request = Request { home, commands };
        let answers = self.send(DOING, vec![request]).await?.into_iter().flatten().collect();
        let [counter, head, fields, values] = exactly(answers)?;
        let counter = reply::counter(counter).map_err(unavailable(DOING))?;
        let [head, fields, values] = exactly(whole(vec![head, fields, values])?)?;
        let begun = Moment::read(head, fields, values)?;
        let mut found = [self.keys.trace(trace), self.keys.context(trace)].map(Scan::new);
        for hash in &mut found {
            let mut cursor = 0;
            loop {
                // The version is read last here, and first above, so that a commit between the
                // commands is noticed.
                let [head, fields, values] = self.moment(trace);
                let commands = vec![scan(&hash.key, cursor, hash.count), fields, values, head];
                let [piece, fields, values, head] = self.about(trace, commands).await?;
                if Moment::read(head, fields, values)? != begun {
                    return Ok(None);
                }
                cursor = hash.add(piece)?;
                if cursor == 0 {
                    break;
                }
            }
        }
        let [fields, values] = found.map(|hash| hash.found);
        if (fields.len(), values.len()) != (begun.fields, begun.values) {
            return Ok(None);
        }
        Ok(Some(LoadedRecord { record: reply::record(DOING, fields, values)?, damaged: None, counter }))
    }

    /// The commands that read the version and `made`, the number of fields, and the number of
    /// values.
    fn moment(&self, trace: TraceId) -> [Cmd; 3] {
        let (fields, values) = (self.keys.trace(trace), self.keys.context(trace));
        [Cmd::hmget(&fields, &[keys::VERSION, keys::STAMP]), Cmd::hlen(&fields), Cmd::hlen(&values)]
    }

    /// Sends commands about one trace, in one request.
    async fn about<const N: usize>(&self, trace: TraceId, commands: Vec<Cmd>) -> Result<[Value; N], Error> {
        let request = Request { home: self.keys.home(trace), commands };
        exactly(whole(self.send(DOING, vec![request]).await?.into_iter().flatten().collect())?)
    }
}

impl Moment {
    fn read(head: Value, fields: Value, values: Value) -> Result<Moment, Error> {
        let (version, made) = decode(DOING, head)?;
        Ok(Moment { version, made, fields: decode(DOING, fields)?, values: decode(DOING, values)? })
    }
}

impl Scan {
    fn new(key: String) -> Scan {
        Scan { key, count: PIECE, found: HashMap::new() }
    }

    /// Adds a piece and returns the cursor of the next one; 0 after the last. A field that is
    /// returned twice has the same text.
    fn add(&mut self, piece: Value) -> Result<u64, Error> {
        let (cursor, piece) = scanned(piece)?;
        let bytes: usize = piece.iter().map(|(field, text)| field.len() + text.len()).sum();
        if let Some(count) = (PIECE_BYTES * piece.len()).checked_div(bytes) {
            self.count = count.clamp(1, PIECE);
        }
        self.found.extend(piece);
        Ok(cursor)
    }
}

/// Reads about `count` fields of a hash, or the whole hash if it has fewer.
fn scan(key: &str, cursor: u64, count: usize) -> Cmd {
    let mut command = redis::cmd("HSCAN");
    command.arg(key).arg(cursor).arg("COUNT").arg(count);
    command
}

fn scanned(piece: Value) -> Result<(u64, HashMap<String, String>), Error> {
    decode(DOING, piece)
}

/// Returns the answers, if none is an error. A stranger wrote a key of another type.
fn whole(answers: Vec<RedisResult<Value>>) -> Result<Vec<Value>, Error> {
    let all: RedisResult<Vec<Value>> = answers.into_iter().collect();
    all.map_err(|error| match error.code() {
        Some(WRONG_TYPE) => corrupt(DOING, WRONG_TYPE),
        Some(_) | None => unavailable(DOING)(error),
    })
}

fn exactly<T, const N: usize>(answers: Vec<T>) -> Result<[T; N], Error> {
    answers.try_into().map_err(|_| corrupt(DOING, "another number of answers"))
}
