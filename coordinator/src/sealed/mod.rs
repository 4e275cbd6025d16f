//! The store as a coordinator with keys uses it (S3): every write is sealed, and a record is valid
//! only if its seal is intact. Without keys the store is used as it is. All traces and profiles on
//! which a coordinator decides are read through this module.
//!
//! A seal does not detect that a whole trace was removed, or put back to an earlier state:
//! counters, marks and the event log do.

mod outbox;
mod seal;

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Deref,
};

use bus::keys::{Keys, Why};
use domain::{TraceId, subject::Namespace};

pub(crate) use seal::Seal;

use crate::store::{
    AgentVersion, Agents, CommitOutcome, Error, LoadedRecord, OutboxKey, Record, Store, Write,
};

/// The kind of data that the codes of profiles sign.
const PROFILE: &str = "profile";
/// The most times that a trace which is not authentic is read again, until two reads are equal.
const READ_AGAIN: usize = 5;

#[derive(Debug, Clone)]
pub(crate) struct SealedStore {
    store: Store,
    keys: Option<Keys>,
    /// The namespace of the deployment: data that was sealed in one deployment is rejected in
    /// another.
    namespace: String,
}

/// A loaded trace, with its seal checked.
#[derive(Debug)]
pub(crate) struct OpenedTrace {
    pub(crate) found: OpenResult,
    /// The counter of its partition, read before the trace.
    pub(crate) counter: u64,
}

#[derive(Debug)]
pub(crate) enum OpenResult {
    Nothing,
    Whole(Record, Seal),
    /// The trace or one of its outboxes is not authentic.
    Refused(Broken),
    /// The trace carries no code, or the code of an unknown key: perhaps a coordinator with other
    /// keys wrote it. The authentic part of its log may be older than the trace, so no decision is
    /// made on it here.
    Foreign(Broken),
    /// The data can't be read as a trace, for this reason.
    Damaged(String),
}

/// A trace whose seal is broken.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) version: u64,
    /// Outboxes that are authentic on their own.
    pub(crate) outbox: BTreeMap<OutboxKey, String>,
    /// Outboxes that are not authentic.
    pub(crate) refused: Vec<OutboxKey>,
    /// The trace, if only outboxes are not authentic.
    pub(crate) record: Option<(Record, Seal)>,
}

impl OpenedTrace {
    /// The record, if it exists and is authentic.
    pub(crate) fn record(self) -> Option<Record> {
        match self.found {
            OpenResult::Whole(record, _) => Some(record),
            // An outbox is not part of the record.
            OpenResult::Refused(broken) => broken.record.map(|(record, _)| record),
            OpenResult::Nothing | OpenResult::Foreign(_) | OpenResult::Damaged(_) => None,
        }
    }
}

impl Deref for SealedStore {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.store
    }
}

impl SealedStore {
    pub(crate) fn new(store: Store, keys: Option<Keys>, namespace: &Namespace) -> Self {
        SealedStore { store, keys, namespace: namespace.to_string() }
    }

    /// The seal of a trace that is not stored yet.
    pub(crate) fn seal(&self, id: TraceId) -> Seal {
        match &self.keys {
            Some(keys) => Seal::new(keys, &self.namespace, id),
            None => Seal::none(),
        }
    }

    pub(crate) async fn load(&self, traces: &[TraceId]) -> Result<Vec<OpenedTrace>, Error> {
        let loaded = self.store.load(traces).await?;
        let mut opened = Vec::with_capacity(traces.len());
        for (id, loaded) in traces.iter().zip(loaded) {
            let (counter, (found, refusals)) = (loaded.counter, self.judge(*id, loaded));
            let found = if refusals.is_empty() { found } else { self.read_again(*id).await? };
            opened.push(OpenedTrace { found, counter });
        }
        Ok(opened)
    }

    /// Reads a trace again until two reads are equal. Fields and values are read one after the
    /// other, and a commit may happen in between. Data that is equal in two reads was stored so at
    /// one moment, and only such data is refused.
    async fn read_again(&self, id: TraceId) -> Result<OpenResult, Error> {
        let one = async || Ok::<_, Error>(self.store.load(&[id]).await?.pop());
        let mut last = one().await?;
        for _ in 0..READ_AGAIN {
            let before = std::mem::replace(&mut last, one().await?);
            let what = |loaded: &Option<LoadedRecord>| {
                loaded.as_ref().map(|loaded| (loaded.record.clone(), loaded.damaged.clone()))
            };
            if what(&before) == what(&last) {
                break;
            }
        }
        let Some(last) = last else { return Ok(OpenResult::Nothing) };
        let version = last.record.as_ref().map_or(0, |record| record.version);
        let (found, refusals) = self.judge(id, last);
        if let Some(keys) = &self.keys {
            refusals.iter().for_each(|(what, why)| keys.refuse(&format!("{what} {id}"), version, *why));
        }
        Ok(found)
    }

    /// Checks the seal of a loaded record. Returns the result, and the reasons for refused parts.
    fn judge(&self, id: TraceId, loaded: LoadedRecord) -> (OpenResult, Vec<(&'static str, Why)>) {
        match (loaded.record, loaded.damaged) {
            (Some(record), _) => self.open(id, record),
            (None, Some(why)) => (OpenResult::Damaged(why), Vec::new()),
            (None, None) => (OpenResult::Nothing, Vec::new()),
        }
    }

    /// Commits writes that the caller has sealed.
    pub(crate) async fn commit(&self, writes: &[Write]) -> Result<Vec<CommitOutcome>, Error> {
        let is_sealed =
            |write: &Write| write.fields.iter().any(|(name, text)| name == seal::FIELD && text.is_some());
        assert!(
            self.keys.is_none() || writes.iter().all(is_sealed),
            "a coordinator with keys seals what it writes"
        );
        self.store.commit(writes).await
    }

    fn open(&self, id: TraceId, mut record: Record) -> (OpenResult, Vec<(&'static str, Why)>) {
        let code = record.fields.remove(seal::FIELD);
        let Some(keys) = &self.keys else {
            record.outbox.values_mut().for_each(|text| drop(outbox::strip(text)));
            return (OpenResult::Whole(record, Seal::unsealed(code.is_some())), Vec::new());
        };
        let version = record.version;
        let (mut refused, mut refusals) = (Vec::new(), Vec::new());
        for (key, text) in &mut record.outbox {
            if let Err(why) = outbox::open(keys, &self.namespace, id, *key, text) {
                refusals.push(("outbox", why));
                refused.push(*key);
            }
        }
        refused.iter().for_each(|key| drop(record.outbox.remove(key)));
        let seal = Seal::check(keys, &self.namespace, id, &record, code.as_deref());
        let found = match seal.inspect_err(|why| refusals.push(("trace", *why))) {
            Err(why) if why.is_foreign() => {
                OpenResult::Foreign(Broken { version, outbox: record.outbox, refused, record: None })
            }
            Ok(seal) if refused.is_empty() => OpenResult::Whole(record, seal),
            seal => {
                let outbox = record.outbox.clone();
                let record = seal.ok().map(|seal| (record, seal));
                OpenResult::Refused(Broken { version, outbox, refused, record })
            }
        };
        (found, refusals)
    }

    /// The id of the key that each trace's seal names. The seals are not checked.
    pub(crate) async fn signers(&self, traces: &[TraceId]) -> Result<Vec<Option<String>>, Error> {
        let fields = self.store.fields(traces, &[seal::FIELD]).await?;
        Ok(fields.iter().map(|fields| signer(fields.get(seal::FIELD)?)).collect())
    }

    /// All agent profiles that are authentic.
    pub(crate) async fn agents(&self) -> Result<Agents, Error> {
        Ok(self.opened_agents().await?.0)
    }

    /// The agents whose profiles are authentic, and not signed with the first key.
    pub(crate) async fn agents_signed_otherwise(&self) -> Result<BTreeSet<String>, Error> {
        Ok(self.opened_agents().await?.1)
    }

    async fn opened_agents(&self) -> Result<(Agents, BTreeSet<String>), Error> {
        let Agents { revision, profiles, mut versions } = self.store.agents().await?;
        let (mut opened, mut otherwise) = (BTreeMap::new(), BTreeSet::new());
        if let Some(keys) = self.keys.as_ref() {
            // A deletion is stored as a text too.
            versions.retain(|agent, version| {
                let has_text = profiles.contains_key(agent);
                if !has_text && keys.accepts_unsigned() {
                    otherwise.insert(agent.clone());
                } else if !has_text {
                    keys.refuse(&format!("profile {agent}"), *version, Why::Unsigned);
                }
                has_text || keys.accepts_unsigned()
            });
        }
        for (agent, text) in profiles {
            // A profile is a JSON object, and a code has no brace.
            let (code, profile) = text.split_at(text.find('{').unwrap_or(text.len()));
            let version = versions.get(&agent).copied();
            let code = Some(code.trim()).filter(|code| !code.is_empty());
            let checked = self.keys.as_ref().map_or(Ok(()), |keys| {
                keys.check(code, PROFILE, &self.parts(&agent, version.unwrap_or_default(), profile).each())
            });
            match (checked, &self.keys) {
                (Err(why), Some(keys)) => {
                    keys.refuse(&format!("profile {agent}"), version.unwrap_or_default(), why);
                    versions.remove(&agent);
                    continue;
                }
                (_, Some(keys)) if code.and_then(signer).as_deref() != Some(keys.signing().id()) => {
                    otherwise.insert(agent.clone());
                }
                (_, _) => {}
            }
            if !profile.is_empty() {
                opened.insert(agent, profile.to_owned());
            }
        }
        Ok((Agents { revision, profiles: opened, versions }, otherwise))
    }

    pub(crate) async fn apply_agents(&self, versions: &[AgentVersion], at_least: u64) -> Result<u64, Error> {
        let Some(keys) = &self.keys else { return self.store.apply_agents(versions, at_least).await };
        let seal = |of: &AgentVersion| {
            let text = of.profile.as_deref().unwrap_or_default();
            let code = keys.signing().sign(PROFILE, &self.parts(&of.agent_id, of.version, text).each());
            // A deletion is stored as a text too: its code.
            AgentVersion { profile: Some(format!("{code} {text}")), ..of.clone() }
        };
        let versions: Vec<AgentVersion> = versions.iter().map(seal).collect();
        self.store.apply_agents(&versions, at_least).await
    }

    fn parts<'a>(&'a self, agent: &'a str, version: u64, text: &'a str) -> Parts<'a> {
        Parts { namespace: &self.namespace, agent, version: version.to_be_bytes(), text }
    }
}

/// The id of the key with which a code was made.
fn signer(code: impl AsRef<str>) -> Option<String> {
    code.as_ref().split_once(':').map(|(key, _)| key.to_owned())
}

/// The data that the code of a profile signs.
struct Parts<'a> {
    namespace: &'a str,
    agent: &'a str,
    version: [u8; 8],
    text: &'a str,
}

impl Parts<'_> {
    fn each(&self) -> [&[u8]; 4] {
        [self.namespace.as_bytes(), self.agent.as_bytes(), &self.version, self.text.as_bytes()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Memory, Replaces};

    const KEY: &str = "0101010101010101010101010101010101010101010101010101010101010101";
    const LATER: &str = "0202020202020202020202020202020202020202020202020202020202020202";
    const OUTBOX: OutboxKey = OutboxKey { version: 1, made: 7 };

    fn id(number: u128) -> TraceId {
        TraceId::from_u128(number).unwrap()
    }

    fn with(store: &Store, keys: &str) -> SealedStore {
        let keys = if keys.is_empty() { None } else { Some(Keys::parse(keys).unwrap()) };
        SealedStore::new(store.clone(), keys, &Namespace::default())
    }

    fn write(trace_id: TraceId, expected: u64, fields: &[(&str, Option<&str>)]) -> Write {
        let fields =
            fields.iter().map(|(name, text)| ((*name).into(), text.map(ToOwned::to_owned))).collect();
        Write {
            trace_id,
            expected,
            stamp: None,
            version: expected + 1,
            replaces: Replaces::Nothing,
            fields,
            values: Vec::new(),
            outbox: None,
            cleared: Vec::new(),
            timer: None,
            keeps_earlier_timer: false,
            ended_at: None,
            opened_at: None,
            profiles: None,
            index: None,
        }
    }

    /// Changes stored data, as an attacker with access to the store can.
    async fn tamper(store: &Store, trace_id: TraceId, change: impl FnOnce(&mut Write)) {
        let version = store.versions(&[trace_id]).await.unwrap()[0];
        let mut write = Write { version, ..write(trace_id, version, &[]) };
        change(&mut write);
        let done = store.commit(&[write]).await.unwrap();
        assert!(matches!(done[..], [CommitOutcome::Done { .. }]), "{done:?}");
    }

    /// Stores a trace of two commits, with a value and an outbox. The returned seal is ready for
    /// the next commit.
    async fn stored(keys: &str) -> (Store, SealedStore, Seal) {
        let store = Store::Memory(Memory::new(1));
        let sealed = with(&store, keys);
        let mut seal = sealed.seal(id(1));
        let mut first = write(id(1), 0, &[("head", Some("{}")), ("b0", Some("1")), ("k0.a", Some("call"))]);
        first.values = vec![("key".into(), Some("value".into()))];
        first.outbox = Some((OUTBOX, r#"{"version":1}"#.into()));
        first.index = Some("5 - term".into());
        let mut second = write(id(1), 1, &[("b0", Some("2"))]);
        for write in [&mut first, &mut second] {
            seal.close(write);
        }
        for write in [first, second] {
            sealed.commit(&[write]).await.unwrap();
        }
        (store, sealed, seal)
    }

    async fn open(sealed: &SealedStore, trace: TraceId) -> OpenResult {
        sealed.load(&[trace]).await.unwrap().remove(0).found
    }

    async fn is_whole(sealed: &SealedStore) -> bool {
        matches!(open(sealed, id(1)).await, OpenResult::Whole(..))
    }

    #[tokio::test]
    async fn s3_sealed_data_is_read_as_it_was_written() {
        let (_, sealed, mut seal) = stored(KEY).await;
        let OpenResult::Whole(record, _) = open(&sealed, id(1)).await else {
            panic!("the record is not whole")
        };
        assert_eq!((record.version, record.fields["b0"].as_str()), (2, "2"));
        assert!(!record.fields.contains_key(seal::FIELD));
        assert_eq!(record.outbox[&OUTBOX], r#"{"version":1}"#, "the outbox has no code");
        // The next commits seal their changes, including deletions and a new beginning.
        let mut third = write(id(1), 2, &[("k0.a", None)]);
        third.values = vec![("key".into(), None)];
        third.cleared = vec![OUTBOX];
        seal.close(&mut third);
        sealed.commit(&[third]).await.unwrap();
        assert!(is_whole(&sealed).await);
        let mut fourth = write(id(1), 3, &[("head", Some("{}"))]);
        fourth.replaces = Replaces::AllButOutboxes;
        seal.close(&mut fourth);
        sealed.commit(&[fourth]).await.unwrap();
        assert!(is_whole(&sealed).await);
        assert_eq!(sealed.keys.as_ref().unwrap().refused(), 0);
    }

    #[tokio::test]
    async fn s3_a_trace_of_which_anything_was_changed_is_refused() {
        let set = |name: &str, text: Option<&str>| (name.to_owned(), text.map(ToOwned::to_owned));
        type Change = Box<dyn FnOnce(&mut Write)>;
        let field = |name: &'static str, text: Option<&'static str>| -> Change {
            Box::new(move |write: &mut Write| write.fields.push(set(name, text)))
        };
        let changes: Vec<(&str, Change)> = vec![
            ("changed", field("b0", Some("3"))),
            ("put back as it was", field("b0", Some("1"))),
            ("added", field("b1", Some("2"))),
            ("taken away", field("k0.a", None)),
            ("without its seal", field(seal::FIELD, None)),
            ("with another seal", field(seal::FIELD, Some("00000000:00000000000000000000000000000000"))),
            ("a value", Box::new(move |write| write.values.push(set("key", Some("other"))))),
            ("its place in the index", Box::new(|write| write.index = Some("5 - other".into()))),
            ("another version", Box::new(|write| write.version = 9)),
            ("a field as a value", Box::new(move |write| write.values.push(set("b0", Some("2"))))),
        ];
        for (what, change) in changes {
            let (store, sealed, _) = stored(KEY).await;
            assert!(is_whole(&sealed).await, "{what}");
            tamper(&store, id(1), change).await;
            assert!(!is_whole(&sealed).await, "{what}");
            assert_eq!(sealed.keys.as_ref().unwrap().refused(), 1, "{what}");
            assert!(
                matches!(open(&with(&store, ""), id(1)).await, OpenResult::Whole(..)),
                "{what}: without keys"
            );
        }
    }

    #[tokio::test]
    async fn s3_a_trace_is_not_another_one_nor_of_another_deployment() {
        let (store, sealed, _) = stored(KEY).await;
        let record = store.load(&[id(1)]).await.unwrap().remove(0).record.unwrap();
        let mut copy = write(id(2), 0, &[]);
        copy.version = record.version;
        copy.index = record.fields.get(crate::store::INDEX_FIELD).cloned();
        let of_the_store = |name: &String| name == crate::store::INDEX_FIELD;
        let fields = record.fields.iter().filter(|(name, _)| !of_the_store(name));
        copy.fields = fields.map(|(name, text)| (name.clone(), Some(text.clone()))).collect();
        copy.values = record.values.iter().map(|(name, text)| (name.clone(), Some(text.clone()))).collect();
        store.commit(&[copy]).await.unwrap();
        assert!(matches!(open(&sealed, id(2)).await, OpenResult::Refused(_)));
        let elsewhere = SealedStore { namespace: "other".into(), ..with(&store, KEY) };
        assert!(!is_whole(&elsewhere).await);
    }

    #[tokio::test]
    async fn s3_an_outbox_counts_only_with_its_own_code() {
        let (store, sealed, _) = stored(KEY).await;
        let text = store.load(&[id(1)]).await.unwrap().remove(0).record.unwrap().outbox[&OUTBOX].clone();
        let other = OutboxKey { version: 2, made: 8 };
        for (key, text) in
            [(other, r#"{"version":2}"#), (other, text.as_str()), (OUTBOX, &text.replace(":1}", ":2}"))]
        {
            let (store, sealed, _) = stored(KEY).await;
            tamper(&store, id(1), |write| write.outbox = Some((key, text.to_owned()))).await;
            let OpenResult::Refused(broken) = open(&sealed, id(1)).await else { panic!("{text}") };
            assert_eq!(broken.refused, [key]);
            assert!(broken.record.is_some(), "the trace itself is authentic");
            assert_eq!(broken.outbox.len(), usize::from(key == other), "the other outbox is valid");
        }
        assert!(is_whole(&sealed).await);
    }

    #[tokio::test]
    async fn s3_keys_can_be_rotated_and_a_deployment_can_begin_to_use_them() {
        let (store, _, _) = stored(KEY).await;
        assert!(!is_whole(&with(&store, LATER)).await);
        let rotated = with(&store, &format!("{LATER}\n{KEY}"));
        let OpenResult::Whole(_, mut seal) = open(&rotated, id(1)).await else {
            panic!("an earlier key verifies")
        };
        let mut third = write(id(1), 2, &[("b0", Some("3"))]);
        third.cleared = vec![OUTBOX];
        seal.close(&mut third);
        rotated.commit(&[third]).await.unwrap();
        assert!(is_whole(&with(&store, LATER)).await, "the first key signs");

        let (store, _, _) = stored("").await;
        let strict = with(&store, KEY);
        assert!(!is_whole(&strict).await);
        let keys = Keys::parse(KEY).unwrap().accepting_unsigned();
        let lenient = SealedStore { keys: Some(keys), ..with(&store, "") };
        let OpenResult::Whole(_, mut seal) = open(&lenient, id(1)).await else {
            panic!("unsigned data is accepted")
        };
        let mut third = write(id(1), 2, &[("b0", Some("3"))]);
        third.cleared = vec![OUTBOX];
        seal.close(&mut third);
        lenient.commit(&[third]).await.unwrap();
        assert!(is_whole(&strict).await);
    }

    #[tokio::test]
    async fn s3_a_coordinator_without_keys_takes_the_seal_away() {
        let (store, sealed, _) = stored(KEY).await;
        let without = with(&store, "");
        let OpenResult::Whole(_, mut seal) = open(&without, id(1)).await else {
            panic!("a store without keys reads everything")
        };
        let mut third = write(id(1), 2, &[("b0", Some("3"))]);
        third.cleared = vec![OUTBOX];
        seal.close(&mut third);
        without.commit(&[third]).await.unwrap();
        let record = store.load(&[id(1)]).await.unwrap().remove(0).record.unwrap();
        assert!(!record.fields.contains_key(seal::FIELD), "no old seal remains for other fields");
        assert!(!is_whole(&sealed).await);
        let lenient = Keys::parse(KEY).unwrap().accepting_unsigned();
        assert!(is_whole(&SealedStore { keys: Some(lenient), ..with(&store, "") }).await);
    }

    #[tokio::test]
    async fn s3_a_commit_writes_one_short_field_more_however_large_the_trace_is() {
        let store = Store::Memory(Memory::new(1));
        let sealed = with(&store, KEY);
        let mut seal = sealed.seal(id(1));
        let mut before = 0;
        for count in [1, 99, 9_900] {
            let names: Vec<String> = (before..before + count).map(|number| format!("b{number}")).collect();
            let fields: Vec<_> = names.iter().map(|name| (name.as_str(), Some("1"))).collect();
            seal.close(&mut write(id(1), 0, &fields));
            before += count;
            let mut one = write(id(1), 1, &[("b0", Some("2"))]);
            seal.close(&mut one);
            assert_eq!(one.fields.len(), 2);
            let bytes: usize =
                one.fields[1..].iter().map(|(name, text)| name.len() + text.as_ref().unwrap().len()).sum();
            assert_eq!(bytes, 45, "after {before} fields");
        }
    }

    #[tokio::test]
    async fn s3_agent_profiles_of_the_store_count_only_with_their_code() {
        let store = Store::Memory(Memory::new(1));
        let sealed = with(&store, KEY);
        let version = |version: u64, profile: Option<&str>| AgentVersion {
            agent_id: "writer".into(),
            version,
            profile: profile.map(ToOwned::to_owned),
            again: false,
        };
        let known = async |sealed: &SealedStore| {
            let Agents { profiles, versions, .. } = sealed.agents().await.unwrap();
            (profiles.get("writer").cloned(), versions.get("writer").copied())
        };
        sealed.apply_agents(&[version(1, Some("{}"))], 0).await.unwrap();
        assert_eq!(known(&sealed).await, (Some("{}".into()), Some(1)));
        assert_eq!(
            known(&with(&store, "")).await,
            (Some("{}".into()), Some(1)),
            "a store without keys reads the value"
        );
        sealed.apply_agents(&[version(2, None)], 0).await.unwrap();
        assert_eq!(known(&sealed).await, (None, Some(2)), "a deletion is signed too");
        let signed = store.agents().await.unwrap().profiles["writer"].clone();
        for (forged, what) in [
            (Some("{}"), "unsigned"),
            (None, "an unsigned deletion"),
            (Some(signed.as_str()), "another version's"),
        ] {
            let forged_version = store.agents().await.unwrap().versions["writer"] + 1;
            store.apply_agents(&[version(forged_version, forged)], 0).await.unwrap();
            assert_eq!(known(&sealed).await, (None, None), "{what}");
        }
    }
}
