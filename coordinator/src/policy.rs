//! What was said about all runs of the deployment, when its coordinators were started. Every heartbeat tells it to the
//! others: whichever coordinator takes a run, the longest retention and the lowest maximum of them all hold. What a
//! coordinator said holds for an hour after it was last heard, unless it was stopped in order: a pause or a crash must not
//! remove runs. And which policies the workers of each pool have.

use std::{
    collections::HashMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use shared::{Timestamp, WorkerId, id::PoolName, keys::Keys, limits::Settings, time::millis, wire::Policy};

use crate::{
    Config,
    store::{Member, Members},
};

#[derive(Debug)]
pub(crate) struct Policies {
    own: Policy,
    /// What holds, as far as the others were heard.
    holds: Mutex<Policy>,
    /// The coordinators whose keys differ so that one does not believe what the other writes.
    apart: Mutex<Vec<WorkerId>>,
    /// Whether all coordinators that were heard of in the last hour sign with keys that are known here.
    alike: AtomicBool,
}

impl Policies {
    pub(crate) fn new(config: &Config) -> Self {
        let own = Policy {
            retention_ms: millis(config.retention),
            max_cost_usd: config.settings.maximum.max_cost_usd,
            log_keys: config.keys.as_ref().map(Keys::ids).unwrap_or_default(),
        };
        Policies {
            holds: Mutex::new(own.clone()),
            own,
            apart: Mutex::default(),
            alike: AtomicBool::new(false),
        }
    }

    /// What this coordinator tells the others.
    pub(crate) fn said(&self) -> String {
        serde_json::to_string(&self.own).expect("a policy has string keys only")
    }

    /// Takes note of what coordinators say. What can't be read was said by another version.
    pub(crate) fn heard<'a>(&self, coordinators: impl IntoIterator<Item = &'a Member>) {
        let holds = read(coordinators).iter().fold(self.own.clone(), |all, other| all.and(other));
        let mut known = self.holds.lock().unwrap_or_else(PoisonError::into_inner);
        if *known != holds && holds != self.own {
            tracing::warn!(
                ?holds,
                "the coordinators were started with different options: the longest --retention and the lowest --max-cost-usd hold"
            );
        }
        *known = holds;
    }

    /// Tells, once, of coordinators that do not know each other's keys (S3): what one writes, the other does not believe, and
    /// decides nothing about it.
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
                "coordinators have different keys: nothing is decided about runs that one of them wrote and another does not believe; give all of them the same --log-key-file"
            );
        }
        *known = apart;
    }

    /// Whether no coordinator that was heard of in the last hour can have written what is signed with no key that is known here.
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

/// What coordinators say.
pub(crate) fn read<'a>(coordinators: impl IntoIterator<Item = &'a Member>) -> Vec<Policy> {
    coordinators.into_iter().filter_map(|member| serde_json::from_str(&member.says).ok()).collect()
}

/// How long a policy that nobody claims with is remembered: if it comes back after that, it is told again.
const REMEMBERED_MS: u64 = 3_600_000;
/// The most policies of one pool that are told in that time: a hostile worker may name any.
const MAX_OF_POOL: usize = 16;
/// The most that are remembered.
const MAX_REMEMBERED: usize = 4_096;

/// The policies that the workers of each pool claim with, by their digests, and when somebody last did.
#[derive(Debug, Default)]
pub(crate) struct WorkerPolicies(Mutex<HashMap<(PoolName, String), Timestamp>>);

/// Whether a policy has to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    Already,
    /// This process has not seen it: it may have been told by another, or an earlier one.
    Unknown,
    /// It was not used for long.
    Back,
}

impl WorkerPolicies {
    /// Remembers that a worker claims with this policy.
    pub(crate) fn seen(&self, pool: &PoolName, policy: &str, now: Timestamp) -> Told {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_old = |at: &Timestamp| now.millis().saturating_sub(at.millis()) > REMEMBERED_MS;
        let key = (pool.clone(), policy.to_owned());
        if let Some(at) = all.get_mut(&key) {
            let told = if is_old(at) { Told::Back } else { Told::Already };
            *at = now;
            return told;
        }
        let others = all.iter().filter(|((of, _), at)| of == pool && !is_old(at)).count();
        if all.len() >= MAX_REMEMBERED {
            all.retain(|_, at| !is_old(at));
        }
        if others >= MAX_OF_POOL || all.len() >= MAX_REMEMBERED {
            return Told::Already;
        }
        all.insert(key, now);
        Told::Unknown
    }

    pub(crate) fn forget(&self, pool: &PoolName, policy: &str) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(&(pool.clone(), policy.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// proves: ten thousand workers with one policy are one record; a pool's policies are bounded, whatever its workers name; and one that
    /// comes back after it was out of use is told again.
    #[test]
    fn s7_a_policy_of_workers_is_told_once_for_each_pool() {
        let policies = WorkerPolicies::default();
        let pool = |name: &str| PoolName::new(name).unwrap();
        let at = Timestamp::from_millis;
        let told =
            (0..10_000).map(|n| policies.seen(&pool("a"), "1", at(n))).filter(|told| *told != Told::Already);
        assert_eq!(told.collect::<Vec<_>>(), [Told::Unknown]);
        assert_eq!(policies.seen(&pool("b"), "1", at(1)), Told::Unknown, "of another pool");
        let hostile = (0..1_000).map(|n| policies.seen(&pool("a"), &format!("{:x}", n + 2), at(20_000)));
        assert_eq!(hostile.filter(|told| *told != Told::Already).count(), MAX_OF_POOL - 1);
        assert_eq!(policies.seen(&pool("a"), "1", at(9_999 + REMEMBERED_MS)), Told::Already);
        assert_eq!(policies.seen(&pool("a"), "1", at(2 * REMEMBERED_MS + 10_000)), Told::Back);
        policies.forget(&pool("a"), "1");
        let later = at(4 * REMEMBERED_MS);
        assert_eq!(policies.seen(&pool("a"), "1", later), Told::Unknown);
    }

    #[test]
    fn s3_coordinators_whose_keys_do_not_fit_are_told_of() {
        let keys = |digits: &str| {
            digits.chars().map(|digit| digit.to_string().repeat(64)).collect::<Vec<_>>().join("\n")
        };
        let with = |name: &str, digits: &str| {
            let mut config = Config::new(name.parse().unwrap());
            config.keys = if digits.is_empty() { None } else { Some(Keys::parse(&keys(digits)).unwrap()) };
            config
        };
        let apart = |own: &str, other: &str| {
            let (own, other) = (Policies::new(&with("own", own)), Policies::new(&with("other", other)));
            let member = |id: &str, of: &Policies| Member { id: id.parse().unwrap(), says: of.said() };
            let both = vec![member("own", &own), member("other", &other)];
            own.compare_keys(&Members { alive: both, silent: Vec::new() });
            let apart = own.apart.lock().unwrap().iter().map(ToString::to_string).collect::<Vec<_>>();
            assert!(!own.said().contains(&keys("1")), "no key is told");
            assert_eq!(own.all_have_our_keys(), apart.is_empty());
            // Whoever was heard of in the last hour may have written what is stored.
            let (alive, silent) = (vec![member("own", &own)], vec![member("other", &other)]);
            own.compare_keys(&Members { alive, silent });
            assert_eq!(own.all_have_our_keys(), apart.is_empty());
            let unknown = Member { id: "older".parse().unwrap(), says: String::new() };
            own.compare_keys(&Members { alive: vec![unknown], silent: Vec::new() });
            assert!(!own.all_have_our_keys(), "what it signs with is not known");
            apart == ["other"]
        };
        assert!(apart("1", "") && apart("", "1") && apart("1", "2"));
        assert!(apart("12", "31") && apart("1", "21"), "it signs with what the other does not know");
        assert!(!apart("", "") && !apart("1", "1") && !apart("12", "21") && !apart("12", "1"));
    }
}
