//! The server's recent denials. The server reports a denial with the subject, but without the
//! request that caused it.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{sync::watch, time::Instant};

use super::super::error::{Action, Denied};

/// The number of denials that are remembered. A waiting request checks them within seconds.
const KEPT: usize = 256;

/// The recent denials, and a counter that changes with each.
#[derive(Debug, Clone)]
pub(super) struct Denials {
    recent: Arc<Mutex<VecDeque<(Denied, Instant)>>>,
    pub(super) count: watch::Sender<u64>,
}

impl Default for Denials {
    fn default() -> Self {
        Denials { recent: Default::default(), count: watch::Sender::new(0) }
    }
}

impl Denials {
    /// Reads an error message of the server. Returns true if it reports a denial.
    pub(super) fn hear(&self, said: &str) -> bool {
        let Some(denied) = parse(said) else { return false };
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let told = |(earlier, at): &(Denied, Instant)| *earlier == denied && at.elapsed() < ASK_AGAIN_AFTER;
        if recent.iter().any(told) {
            tracing::debug!(%denied, "the NATS server denies a permission again");
        } else {
            tracing::warn!(%denied, "the NATS server denies a permission");
        }
        if recent.len() == KEPT {
            recent.pop_front();
        }
        recent.push_back((denied, Instant::now()));
        drop(recent);
        self.count.send_modify(|count| *count += 1);
        true
    }

    /// A denial since then of this subject, or of the inbox. Answers arrive at the inbox, which is
    /// subscribed to once for all requests; that denial may be older than `since`.
    pub(super) fn of(&self, action: Action, subject: &str, inbox: &str, since: Instant) -> Option<Denied> {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let needed = |(denied, at): &&(Denied, Instant)| {
            let this = denied.action == action && denied.subject == subject && *at >= since;
            this || (denied.action == Action::Subscribe && denied.subject.starts_with(inbox))
        };
        recent.iter().find(needed).map(|(denied, _)| denied.clone())
    }
}

/// A permission that was denied and is not requested again for a while on the same connection. It
/// may be granted later.
#[derive(Debug, Default)]
pub(super) struct Latch(Mutex<Option<(u64, Instant)>>);

/// After this time a denied permission is requested again: a server that reloads its configuration
/// may keep its connections.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(60);

impl Latch {
    /// Notes that it was denied on the connection with this number.
    pub(super) fn note(&self, connection: u64) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((connection, Instant::now()));
    }

    pub(super) fn holds(&self, connection: u64) -> bool {
        let noted = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        noted.is_some_and(|(on, at)| on == connection && at.elapsed() < ASK_AGAIN_AFTER)
    }
}

/// Parses `Permissions Violation for Publish to "agent.submit"`, or
/// `… for Subscription to "agent.stop.*"`. The message has more text at its end if the subscription
/// has a group.
fn parse(said: &str) -> Option<Denied> {
    let at = said.to_ascii_lowercase().find("permissions violation for ")?;
    let rest = said.get(at + "permissions violation for ".len()..)?;
    let (action, rest) = rest.split_once(" to ")?;
    let action = match action.to_ascii_lowercase().as_str() {
        "publish" | "publish with reply" => Action::Publish,
        "subscription" => Action::Subscribe,
        _ => return None,
    };
    let subject = rest.split('"').nth(1)?;
    Some(Denied { action, subject: subject.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: Duration = Duration::from_secs(1);

    #[test]
    fn denials_of_the_server_are_parsed() {
        let read = |said: &str| parse(said).map(|denied| (denied.action, denied.subject));
        let submit = Some((Action::Publish, "agent.submit".to_owned()));
        assert_eq!(read("Permissions Violation for Publish to \"agent.submit\""), submit);
        assert_eq!(read("nats: permissions violation for publish to \"agent.submit\""), submit);
        let stops = Some((Action::Subscribe, "agent.stop.*".to_owned()));
        assert_eq!(
            read("Permissions Violation for Subscription to \"agent.stop.*\" using queue \"q\""),
            stops
        );
        for other in [
            "Authorization Violation",
            "Permissions Violation for Everything to \"x\"",
            "",
            "Stale Connection",
        ] {
            assert_eq!(read(other), None, "{other}");
        }
    }

    #[tokio::test]
    async fn a_denial_is_of_its_subject_and_time_and_one_of_the_inbox_of_every_request() {
        let (denials, before) = (Denials::default(), Instant::now());
        assert!(denials.hear("Permissions Violation for Publish to \"agent.submit\""));
        assert!(!denials.hear("Stale Connection"));
        let of = |subject, since| denials.of(Action::Publish, subject, "_INBOX_me", since);
        assert!(of("agent.submit", before).is_some());
        assert!(of("agent.query", before).is_none());
        assert!(of("agent.submit", Instant::now() + LATER).is_none());
        denials.hear("Permissions Violation for Subscription to \"_INBOX_me.abc.*\"");
        assert!(of("agent.query", Instant::now() + LATER).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn s1_a_denial_does_not_count_on_another_connection_nor_for_ever() {
        let latch = Latch::default();
        assert!(!latch.holds(1));
        latch.note(1);
        assert!(latch.holds(1) && !latch.holds(2));
        tokio::time::advance(ASK_AGAIN_AFTER).await;
        assert!(!latch.holds(1));
    }
}
