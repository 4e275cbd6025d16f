//! The policies that are valid for all runs of a deployment, and the policies of each pool's
//! workers.
//!
//! Each coordinator is started with a retention and a maximum, and its heartbeats carry them to the
//! others. The longest retention and the lowest maximum of all coordinators are valid, whichever
//! coordinator takes a run. The policy of a coordinator stays valid for an hour after its last
//! heartbeat, unless it was stopped in order: a pause or a crash must not remove runs.

use std::{
    collections::HashMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use bus::keys::Keys;
use domain::{
    Timestamp, WorkerId,
    id::PoolName,
    limits::Settings,
    time::millis,
    wire::{AdminRecord, Policy},
};
use serde::{Deserialize, Serialize};

use crate::{
    Config,
    store::{Member, Members},
};

/// The policy in a coordinator's heartbeats.
#[derive(Debug, Serialize, Deserialize)]
struct PolicyMessage {
    #[serde(flatten)]
    policy: Policy,
    /// When the coordinator was started: two live members with one id are two processes.
    started_at: Timestamp,
}

#[derive(Debug)]
pub(crate) struct Policies {
    own: Policy,
    started_at: Timestamp,
    /// The valid policy, as far as heartbeats were received.
    holds: Mutex<Policy>,
    /// The live coordinators that reject this one's signatures, or whose signatures this one
    /// rejects.
    apart: Mutex<Vec<WorkerId>>,
    /// True if all coordinators with a heartbeat in the last hour sign with keys that are known
    /// here.
    alike: AtomicBool,
}

impl Policies {
    pub(crate) fn new(config: &Config, started_at: Timestamp) -> Self {
        let own = Policy {
            retention_ms: millis(config.retention),
            max_cost_usd: config.settings.maximum.max_cost_usd,
            log_keys: config.keys.as_ref().map(Keys::ids).unwrap_or_default(),
        };
        Policies {
            holds: Mutex::new(own.clone()),
            own,
            started_at,
            apart: Mutex::default(),
            alike: AtomicBool::new(false),
        }
    }

    /// The text of this coordinator's heartbeats.
    pub(crate) fn said(&self) -> String {
        let said = PolicyMessage { policy: self.own.clone(), started_at: self.started_at };
        serde_json::to_string(&said).expect("a policy has string keys only")
    }

    /// Returns true for an earlier process under our id.
    pub(crate) fn is_before_us(&self, member: &Member, own: &WorkerId) -> bool {
        let said = serde_json::from_str::<PolicyMessage>(&member.says).ok();
        member.id == *own && said.is_some_and(|said| said.started_at < self.started_at)
    }

    /// Returns true for an earlier process under our id with the same policy: it need not be
    /// remembered.
    pub(crate) fn is_replaced_by_us(&self, member: &Member, own: &WorkerId) -> bool {
        let said = serde_json::from_str::<Policy>(&member.says).ok();
        self.is_before_us(member, own) && said.as_ref() == Some(&self.own)
    }

    /// Updates the valid policy from heartbeats. A text that can't be read is from another version.
    pub(crate) fn heard<'a>(&self, coordinators: impl IntoIterator<Item = &'a Member>) {
        let holds = read(coordinators).iter().fold(self.own.clone(), |all, other| all.and(other));
        let mut known = self.holds.lock().unwrap_or_else(PoisonError::into_inner);
        if *known != holds && holds != self.own {
            tracing::warn!(
                ?holds,
                "the coordinators were started with different options: the longest --retention and the lowest --max-cost-usd apply"
            );
        }
        *known = holds;
    }

    /// Logs, once, coordinators that do not know each other's keys (S3): each rejects the writes of
    /// the other, and makes no decisions on them.
    pub(crate) fn compare_keys(&self, members: &Members) {
        let said = |member: &Member| serde_json::from_str::<Policy>(&member.says).ok();
        let alike = |member: &Member| said(member).is_some_and(|said| !said.keys_are_apart(&self.own));
        let all = members.alive.iter().chain(&members.silent);
        self.alike.store(all.into_iter().all(alike), Ordering::Relaxed);
        let apart = |member: &&Member| said(member).is_some_and(|said| said.keys_are_apart(&self.own));
        let apart: Vec<WorkerId> =
            members.alive.iter().filter(apart).map(|member| member.id.clone()).collect();
        let mut known = self.apart.lock().unwrap_or_else(PoisonError::into_inner);
        if !apart.is_empty() && *known != apart {
            tracing::warn!(
                own = ?self.own.log_keys,
                ?apart,
                "coordinators have different keys, so each rejects the runs that the other wrote; give all of them the same --log-key-file"
            );
        }
        *known = apart;
    }

    /// Returns true if every coordinator with a heartbeat in the last hour signs with keys that are
    /// known here. Data with another signature is then not theirs.
    pub(crate) fn all_have_our_keys(&self) -> bool {
        self.alike.load(Ordering::Relaxed)
    }

    pub(crate) fn holds(&self) -> Policy {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The settings of a run that is admitted now.
    pub(crate) fn apply(&self, mut settings: Settings) -> Settings {
        settings.maximum.max_cost_usd = self.holds().max_cost_usd;
        settings
    }
}

/// The policies in heartbeats.
pub(crate) fn read<'a>(coordinators: impl IntoIterator<Item = &'a Member>) -> Vec<Policy> {
    coordinators.into_iter().filter_map(|member| serde_json::from_str(&member.says).ok()).collect()
}

/// A policy without claims is forgotten after this time. If it is used again later, that may be
/// another change.
const REMEMBERED_MS: u64 = 3_600_000;
/// The most policies of one pool that are recorded in that time, by all coordinators together. A
/// hostile worker may name any policy, and must not push out the records of administrators.
const MAX_OF_POOL: usize = 16;
/// The most policies that are remembered.
const MAX_REMEMBERED: usize = 4_096;

/// The policies that the workers of each pool claim with, by their digests.
#[derive(Debug, Default)]
pub(crate) struct WorkerPolicies(Mutex<HashMap<(PoolName, String), PolicyClaims>>);

/// When workers claimed with a policy.
#[derive(Debug, Clone, Copy)]
struct PolicyClaims {
    last: Timestamp,
    /// When a record of the policy was last considered.
    told: Timestamp,
}

/// The answer of [`WorkerPolicies::seen`]: a record of the policy may be due, or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PolicyAnnouncement {
    Already,
    /// This process has not seen the policy: another or an earlier process may have recorded it.
    Unknown,
    /// The policy was not used for long: others may have been used meanwhile.
    Back,
}

fn is_old(at: Timestamp, now: Timestamp) -> bool {
    now.millis().saturating_sub(at.millis()) > REMEMBERED_MS
}

/// Returns true if a policy is to be recorded: it is a change, and its pool has not changed too
/// often. `earlier` has all records so far.
pub(crate) fn is_change(
    told: PolicyAnnouncement,
    names: &[String],
    earlier: &[AdminRecord],
    now: Timestamp,
) -> bool {
    let of_pool = earlier.iter().filter(|one| one.names.first() == names.first());
    let known = match told {
        PolicyAnnouncement::Already => true,
        PolicyAnnouncement::Unknown => of_pool.clone().any(|one| one.names == names),
        PolicyAnnouncement::Back => of_pool.clone().next_back().is_some_and(|one| one.names == names),
    };
    !known && of_pool.filter(|one| !is_old(one.at, now)).count() < MAX_OF_POOL
}

impl WorkerPolicies {
    /// Remembers that a worker claims with this policy.
    pub(crate) fn seen(&self, pool: &PoolName, policy: &str, now: Timestamp) -> PolicyAnnouncement {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (pool.clone(), policy.to_owned());
        if let Some(claimed) = all.get_mut(&key).filter(|claimed| !is_old(claimed.last, now)) {
            claimed.last = now;
            return PolicyAnnouncement::Already;
        }
        let told = all.iter().filter(|((of, _), claimed)| of == pool && !is_old(claimed.told, now)).count();
        let is_known = all.contains_key(&key);
        if !is_known && all.len() >= MAX_REMEMBERED {
            all.retain(|_, claimed| !is_old(claimed.last, now));
        }
        if told >= MAX_OF_POOL || (!is_known && all.len() >= MAX_REMEMBERED) {
            return PolicyAnnouncement::Already;
        }
        all.insert(key, PolicyClaims { last: now, told: now });
        if is_known { PolicyAnnouncement::Back } else { PolicyAnnouncement::Unknown }
    }

    pub(crate) fn forget(&self, pool: &PoolName, policy: &str) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(&(pool.clone(), policy.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// proves: ten thousand workers with one policy make one record; a policy that is used again
    /// after a long pause is considered again.
    #[test]
    fn s7_a_policy_of_workers_is_recorded_once_for_each_pool() {
        let policies = WorkerPolicies::default();
        let pool = |name: &str| PoolName::new(name).unwrap();
        let at = Timestamp::from_millis;
        let told = (0..10_000)
            .map(|n| policies.seen(&pool("a"), "1", at(n)))
            .filter(|told| *told != PolicyAnnouncement::Already);
        assert_eq!(told.collect::<Vec<_>>(), [PolicyAnnouncement::Unknown]);
        assert_eq!(
            policies.seen(&pool("b"), "1", at(1)),
            PolicyAnnouncement::Unknown,
            "the policy of another pool is unknown"
        );
        let hostile = (0..1_000).map(|n| policies.seen(&pool("a"), &format!("{:x}", n + 2), at(20_000)));
        assert_eq!(hostile.filter(|told| *told != PolicyAnnouncement::Already).count(), MAX_OF_POOL - 1);
        assert_eq!(policies.seen(&pool("a"), "1", at(9_999 + REMEMBERED_MS)), PolicyAnnouncement::Already);
        assert_eq!(policies.seen(&pool("a"), "1", at(2 * REMEMBERED_MS + 10_000)), PolicyAnnouncement::Back);
        policies.forget(&pool("a"), "1");
        let later = at(4 * REMEMBERED_MS);
        assert_eq!(policies.seen(&pool("a"), "1", later), PolicyAnnouncement::Unknown);
    }

    fn record(pool: &PoolName, policy: &str, at: Timestamp) -> AdminRecord {
        let names = vec![format!("pool {pool}"), format!("policy {policy}")];
        AdminRecord { at, asked: "worker_policy".into(), names, by: None, digest: None }
    }

    /// proves: a stolen worker names new policies each hour, and then all of the earlier hours. No
    /// more of them are considered than in its first hour.
    #[test]
    fn s7_policies_that_come_back_count_in_the_bound_of_their_pool() {
        let (policies, pool) = (WorkerPolicies::default(), PoolName::new("a").unwrap());
        for hour in 0..50_u64 {
            let now = Timestamp::from_millis((hour + 1) * (REMEMBERED_MS + 1));
            let named =
                (0..20 * (hour + 1)).rev().map(|number| policies.seen(&pool, &format!("{number:x}"), now));
            assert_eq!(
                named.filter(|told| *told != PolicyAnnouncement::Already).count(),
                MAX_OF_POOL,
                "hour {hour}"
            );
        }
    }

    /// proves: all coordinators together store no more records of a pool in an hour than one
    /// coordinator may, and as many again of another pool.
    #[test]
    fn s7_the_records_of_a_pool_are_bounded_whichever_coordinator_stores_them() {
        let mut stored: Vec<AdminRecord> = Vec::new();
        for hour in 1..=5_u64 {
            let now = Timestamp::from_millis(hour * (REMEMBERED_MS + 1));
            for (pool, told) in [
                ("a", PolicyAnnouncement::Unknown),
                ("b", PolicyAnnouncement::Unknown),
                ("a", PolicyAnnouncement::Back),
                ("b", PolicyAnnouncement::Back),
            ] {
                for number in 0..20 {
                    let record = record(&PoolName::new(pool).unwrap(), &format!("{hour:x}{number:x}"), now);
                    if is_change(told, &record.names, &stored, now) {
                        stored.push(record);
                    }
                }
            }
            assert_eq!(stored.iter().filter(|one| one.at == now).count(), 2 * MAX_OF_POOL, "hour {hour}");
        }
    }

    /// proves: a pool that claims seldom, always with one policy, has one record; a pool that
    /// changes to another policy and back has three.
    #[test]
    fn s7_a_repeated_policy_is_recorded_only_after_another_one() {
        let (policies, pool) = (WorkerPolicies::default(), PoolName::new("a").unwrap());
        let mut stored: Vec<AdminRecord> = Vec::new();
        let mut claims = |digest: &str, hour: u64| {
            let now = Timestamp::from_millis(hour * (REMEMBERED_MS + 1));
            let record = record(&pool, digest, now);
            if is_change(policies.seen(&pool, digest, now), &record.names, &stored, now) {
                stored.push(record);
            }
            stored.len()
        };
        assert_eq!((1..20).map(|hour| claims("1", hour)).max(), Some(1), "nothing has changed");
        assert_eq!([claims("2", 21), claims("2", 23), claims("1", 25), claims("1", 27)], [2, 2, 3, 3]);
    }

    #[test]
    fn s3_coordinators_with_different_keys_are_reported() {
        let keys = |digits: &str| {
            digits.chars().map(|digit| digit.to_string().repeat(64)).collect::<Vec<_>>().join("\n")
        };
        let with = |name: &str, digits: &str| {
            let mut config = Config::new(name.parse().unwrap());
            config.keys = if digits.is_empty() { None } else { Some(Keys::parse(&keys(digits)).unwrap()) };
            config
        };
        let policies = |config: &Config| Policies::new(config, Timestamp::from_millis(1_000));
        let apart = |own: &str, other: &str| {
            let (own, other) = (policies(&with("own", own)), policies(&with("other", other)));
            let member = |id: &str, of: &Policies| Member { id: id.parse().unwrap(), says: of.said() };
            let both = vec![member("own", &own), member("other", &other)];
            own.compare_keys(&Members { alive: both, silent: Vec::new() });
            let apart = own.apart.lock().unwrap().iter().map(ToString::to_string).collect::<Vec<_>>();
            assert!(!own.said().contains(&keys("1")), "the announcement contains no key");
            assert_eq!(own.all_have_our_keys(), apart.is_empty());
            // A coordinator with a heartbeat in the last hour may have written the stored data.
            let (alive, silent) = (vec![member("own", &own)], vec![member("other", &other)]);
            own.compare_keys(&Members { alive, silent });
            assert_eq!(own.all_have_our_keys(), apart.is_empty());
            let unknown = Member { id: "older".parse().unwrap(), says: String::new() };
            own.compare_keys(&Members { alive: vec![unknown], silent: Vec::new() });
            assert!(!own.all_have_our_keys(), "the signing key is unknown");
            apart == ["other"]
        };
        assert!(apart("1", "") && apart("", "1") && apart("1", "2"));
        assert!(
            apart("12", "31") && apart("1", "21"),
            "one process signs with a key that the other does not know"
        );
        assert!(!apart("", "") && !apart("1", "1") && !apart("12", "21") && !apart("12", "1"));
    }
}
