//! Webhooks (X9): addresses that receive outcomes and questions. An operator lists them in a file,
//! and only that file can name an address.

mod file;
mod send;

use std::{collections::BTreeSet, net::IpAddr};

use reqwest::Url;
use serde::{Deserialize, Serialize};

pub use file::{WebhookFileError, Webhooks};
pub use send::{Sender, WebhookError};

use domain::{Labels, Problems, id::WebhookName, signature::Secret, wire::WebhookOccasion};

use crate::internet::is_global;

/// The most webhooks of a deployment. Each outcome is matched with all of them.
const MAX_WEBHOOKS: usize = 32;
/// The most secrets of a webhook: the current one, and earlier or later ones during a change.
const MAX_SECRETS: usize = 3;

/// The file of webhooks.
#[derive(Debug, Default, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct List {
    webhooks: Vec<Webhook>,
}

/// A webhook: its address, and the occasions that it receives.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Webhook {
    /// Its name in logs and metrics.
    pub name: WebhookName,
    /// The address that receives the messages: an https address, without a login.
    pub url: String,
    /// The secrets that sign the messages. During a change there are several, and each signs.
    pub secrets: Vec<Secret>,
    /// The kinds of occasions that it receives.
    #[serde(default = "Happening::all")]
    pub on: BTreeSet<Happening>,
    /// The contexts whose outcomes it receives. It receives questions of all contexts.
    #[serde(default)]
    pub contexts: Contexts,
    /// Limits it to runs that have all these labels.
    #[serde(default)]
    pub labels: Labels,
    /// Allows an address of an internal network, and plain http.
    #[serde(default)]
    pub internal: bool,
}

/// The kinds of occasions that a webhook can receive.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Happening {
    Outcome,
    Question,
}

impl Happening {
    fn all() -> BTreeSet<Happening> {
        [Happening::Outcome, Happening::Question].into()
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Contexts {
    /// The root context: the outcome of the run as a whole.
    #[default]
    Root,
    All,
}

impl Webhook {
    /// Returns true if it receives this kind of occasion in a run with these labels.
    fn wants(&self, happening: Happening, is_root: bool, labels: &Labels) -> bool {
        let of_context = match (happening, self.contexts) {
            (Happening::Question, _) | (_, Contexts::All) => true,
            (Happening::Outcome, Contexts::Root) => is_root,
        };
        let has = |(key, value)| labels.get(key) == Some(value);
        of_context && self.on.contains(&happening) && self.labels.iter().all(has)
    }

    /// Adds the problems of a webhook.
    fn check(&self, at: &str, problems: &mut Problems) {
        if let Err((what, hint)) = self.checked_url() {
            problems.add(format!("{at}.url"), what, Some(hint.into()));
        }
        if !(1..=MAX_SECRETS).contains(&self.secrets.len()) {
            let what = format!("it has {} secrets", self.secrets.len());
            let hint = format!("1 to {MAX_SECRETS}, as `trellis webhooks secret` makes them");
            problems.add(format!("{at}.secrets"), what, Some(hint));
        }
        if self.on.is_empty() {
            problems.add(
                format!("{at}.on"),
                "the list of events is empty",
                Some("`outcome`, `question`, or both".into()),
            );
        }
    }

    /// Its address, if a connection to it is allowed. A name is looked up only when a message is
    /// sent.
    fn checked_url(&self) -> Result<Url, (&'static str, &'static str)> {
        let url =
            Url::parse(&self.url).map_err(|_| ("not an address", "such as https://example.com/trellis"))?;
        match url.scheme() {
            "https" => {}
            "http" if self.internal => {}
            _ => {
                return Err((
                    "the address does not begin with https",
                    "`internal: true` allows http, for your own network",
                ));
            }
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err((
                "the address contains a login",
                "messages are signed: the receiver checks the signature",
            ));
        }
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        if host.is_empty() {
            return Err(("the address has no host", "such as https://example.com/trellis"));
        }
        match host.parse::<IpAddr>() {
            Ok(address) if !self.internal && !is_global(address) => {
                Err(("the address belongs to an internal network", "`internal: true` allows it"))
            }
            Ok(_) | Err(_) => Ok(url),
        }
    }
}

impl List {
    fn check(&self) -> Result<(), Problems> {
        let mut problems = Problems::default();
        let mut names = BTreeSet::new();
        for (index, webhook) in self.webhooks.iter().enumerate() {
            let at = format!("webhooks[{index}]");
            webhook.check(&at, &mut problems);
            if !names.insert(&webhook.name) {
                problems.add(format!("{at}.name"), "another webhook has this name", None);
            }
        }
        if self.webhooks.len() > MAX_WEBHOOKS {
            problems.add("webhooks", format!("there are more than {MAX_WEBHOOKS}"), None);
        }
        problems.or(())
    }
}

/// The webhooks that receive this occasion.
pub fn told<'w>(
    webhooks: &'w [Webhook],
    of: &WebhookOccasion,
    is_root: bool,
    labels: &'w Labels,
) -> impl Iterator<Item = &'w WebhookName> + use<'w> {
    let happening = match of {
        WebhookOccasion::Outcome => Happening::Outcome,
        WebhookOccasion::Question { .. } => Happening::Question,
    };
    let told = webhooks.iter().filter(move |webhook| webhook.wants(happening, is_root, labels));
    told.map(|webhook| &webhook.name)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(webhook: Value) -> Result<Webhook, Problems> {
        file::parse(json!({"webhooks": [webhook]}).to_string().as_bytes()).map(|mut all| all.remove(0))
    }

    fn with(fields: &[(&str, Value)]) -> Value {
        let mut webhook =
            json!({"name": "one", "url": "https://example.com/x", "secrets": [Secret::from_bits([1, 2])]});
        for (key, value) in fields {
            webhook[key] = value.clone();
        }
        webhook
    }

    #[test]
    fn x9_a_webhook_gets_only_the_events_that_it_asks_for() {
        let labels = |text: Value| serde_json::from_value::<Labels>(text).unwrap();
        let (docs, none) = (labels(json!({"team": "docs", "x": "y"})), Labels::default());
        let plain = read(with(&[])).unwrap();
        assert!(
            plain.wants(Happening::Outcome, true, &none) && !plain.wants(Happening::Outcome, false, &none)
        );
        assert!(plain.wants(Happening::Question, false, &none));
        let all = read(with(&[("contexts", json!("all")), ("on", json!(["outcome"]))])).unwrap();
        assert!(all.wants(Happening::Outcome, false, &none) && !all.wants(Happening::Question, true, &none));
        let of_docs = read(with(&[("labels", json!({"team": "docs"}))])).unwrap();
        assert!(
            of_docs.wants(Happening::Outcome, true, &docs) && !of_docs.wants(Happening::Outcome, true, &none)
        );
    }

    #[test]
    fn x9_an_internal_address_has_to_be_allowed() {
        for (url, internal, is_fine) in [
            ("https://example.com/a?b=c", false, true),
            ("https://8.8.8.8:8443/", false, true),
            ("http://example.com/", false, false),
            ("http://example.com/", true, true),
            ("https://127.0.0.1/", false, false),
            ("https://127.0.0.1/", true, true),
            ("https://169.254.169.254/latest", false, false),
            ("https://[::1]/", false, false),
            ("https://[::ffff:10.0.0.1]/", false, false),
            ("https://0x7f.1/", false, false),
            ("https://2130706433/", false, false),
            ("https://user@example.com/", true, false),
            ("ftp://example.com/", true, false),
            ("file:///etc/passwd", true, false),
            ("example.com", true, false),
        ] {
            let read = read(with(&[("url", json!(url)), ("internal", json!(internal))]));
            assert_eq!(read.is_ok(), is_fine, "{url} {internal} {read:?}");
        }
    }

    #[test]
    fn all_mistakes_of_a_file_are_named_and_no_secret_is_shown() {
        let wrong = with(&[("url", json!("http://example.com")), ("secrets", json!([])), ("on", json!([]))]);
        let told = read(wrong).unwrap_err().to_string();
        for part in ["webhooks[0].url", "webhooks[0].secrets", "webhooks[0].on"] {
            assert!(told.contains(part), "{told}");
        }
        let secret = "whsec_c2VjcmV0c2VjcmV0";
        for wrong in
            [json!([secret]), json!(secret), json!({"one": secret}), json!([{"one": secret}]), json!([7])]
        {
            let told = read(with(&[("secrets", wrong)])).unwrap_err().to_string();
            assert!(told.contains("webhooks[0].secrets") && !told.contains("c2VjcmV0"), "{told}");
        }
        let good = read(with(&[])).unwrap();
        assert!(!format!("{good:?}").contains("whsec_"), "{good:?}");
    }
}
