//! The file of webhooks. It is read again when it changes; an invalid new version leaves the
//! current webhooks in use.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use domain::{
    Problems,
    decode::{self, Format},
};
use tokio::sync::watch;

use super::{List, Webhook};

/// The interval between reads of the file.
const LOOK: Duration = Duration::from_secs(2);
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The reasons why a file of webhooks is invalid. They never contain a secret.
#[derive(Debug, thiserror::Error)]
#[error("{} is not a valid webhook file\n\n{problems}", .path.display())]
pub struct WebhookFileError {
    path: PathBuf,
    problems: Problems,
}

/// The current webhooks. Clones share them.
#[derive(Debug, Clone)]
pub struct Webhooks {
    path: Option<Arc<Path>>,
    all: watch::Sender<Arc<Vec<Webhook>>>,
}

impl Default for Webhooks {
    /// No webhooks, ever.
    fn default() -> Self {
        Webhooks { path: None, all: watch::Sender::new(Arc::default()) }
    }
}

impl Webhooks {
    /// Reads a file in YAML or JSON.
    pub fn read(path: &Path) -> Result<Self, WebhookFileError> {
        let read = contents(path).and_then(|text| parse(&text));
        let all = read.map_err(|problems| WebhookFileError { path: path.to_owned(), problems })?;
        Ok(Webhooks { path: Some(path.into()), all: watch::Sender::new(Arc::new(all)) })
    }

    /// Returns true if there is no file, so that there will never be webhooks.
    pub fn are_off(&self) -> bool {
        self.path.is_none()
    }

    pub fn now(&self) -> Arc<Vec<Webhook>> {
        self.all.borrow().clone()
    }

    /// The current webhooks, with later changes.
    pub fn watch(&self) -> watch::Receiver<Arc<Vec<Webhook>>> {
        self.all.subscribe()
    }

    /// Reads the file again when it changes, for ever. New content is used once two reads in a row
    /// return it, because one read may find a file that is still being written.
    pub async fn follow(&self) {
        let Some(path) = &self.path else { return std::future::pending().await };
        let (mut seen, mut judged) = (None, None);
        loop {
            tokio::time::sleep(LOOK).await;
            let path = path.clone();
            // A read of a file may block.
            let Ok(found) = tokio::task::spawn_blocking(move || contents(&path)).await else { continue };
            let found = found.map_err(|problems| problems.to_string());
            if seen.replace(found.clone()).as_ref() != Some(&found) || judged.as_ref() == Some(&found) {
                continue;
            }
            let read = found.clone().and_then(|text| parse(&text).map_err(|problems| problems.to_string()));
            judged = Some(found);
            match read {
                Ok(all) => {
                    if all != *self.now() {
                        tracing::info!(webhooks = all.len(), "the webhook file was read again");
                        self.all.send_replace(Arc::new(all));
                    }
                }
                Err(error) => {
                    tracing::warn!(
                        error,
                        "the webhook file could not be read again; the previous webhooks stay active"
                    );
                }
            }
        }
    }
}

pub(super) fn parse(text: &[u8]) -> Result<Vec<Webhook>, Problems> {
    let format = if text.starts_with(b"{") { Format::Json } else { Format::Yaml };
    let list: Result<List, Problems> = decode::parse(text, format).and_then(|value| decode::value(&value));
    let list = list.map_err(without_secrets)?;
    list.check()?;
    Ok(list.webhooks)
}

/// A value in place of a secret may be a secret in another form, so problems there don't show it.
fn without_secrets(problems: Problems) -> Problems {
    let mut all = Problems::default();
    for problem in problems.iter() {
        let message = match problem.path.contains(".secrets") {
            true => "not a list of secrets",
            false => &problem.message,
        };
        let hint = match problem.path.contains(".secrets") {
            true => Some("[whsec_…], as `trellis webhooks secret` makes it: 24 to 64 bytes in base64".into()),
            false => problem.hint.clone(),
        };
        all.add(problem.path.clone(), message, hint);
    }
    all
}

fn contents(path: &Path) -> Result<Vec<u8>, Problems> {
    let wrong = |what: String| Problems::one("", what, None);
    let mut text = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut text));
    read.map_err(|error| wrong(format!("the file can't be read: {error}")))?;
    match text.len() as u64 {
        0..=MAX_FILE_BYTES => Ok(text),
        _ => Err(wrong(format!("the file has more than {MAX_FILE_BYTES} bytes"))),
    }
}
