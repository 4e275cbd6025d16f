//! What was said about all runs of the deployment, when its coordinators were started. Every heartbeat tells it to the
//! others: whichever coordinator takes a run, the longest retention and the lowest maximum of them all hold. What a
//! coordinator said holds for an hour after it was last heard, unless it was stopped in order: a pause or a crash must not
//! remove runs.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use shared::{WorkerId, keys::Keys, limits::Settings, time::millis, wire::Policy};

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

#[cfg(test)]
mod tests {
    use super::*;

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
