//! The file of webhooks, read again as it changes: one that can't be used leaves those that count as they are.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use super::{List, Webhook};
use crate::{
    Problems,
    decode::{self, Format},
};

/// How often the file is looked at.
const LOOK: Duration = Duration::from_secs(2);
const MAX_FILE_BYTES: usize = 1 << 20;

/// Why a file of webhooks can't be used. It never holds a secret.
#[derive(Debug, thiserror::Error)]
#[error("{} is not a usable file of webhooks\n\n{problems}", .path.display())]
pub struct Unusable {
    path: PathBuf,
    problems: Problems,
}

/// The webhooks that count now. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Webhooks {
    path: Option<Arc<Path>>,
    all: Arc<RwLock<Arc<Vec<Webhook>>>>,
}

impl Webhooks {
    /// Reads a file in YAML or JSON.
    pub fn read(path: &Path) -> Result<Self, Unusable> {
        let all = read(path)?;
        Ok(Webhooks { path: Some(path.into()), all: Arc::new(RwLock::new(Arc::new(all))) })
    }

    /// Whether there is no file, so that there never are any.
    pub fn are_off(&self) -> bool {
        self.path.is_none()
    }

    pub fn now(&self) -> Arc<Vec<Webhook>> {
        self.all.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the file again as it changes, for ever.
    pub async fn follow(&self) {
        let Some(path) = &self.path else { return std::future::pending().await };
        let mut told = None;
        loop {
            tokio::time::sleep(LOOK).await;
            let path = path.clone();
            // A read of a file may block.
            let Ok(read) = tokio::task::spawn_blocking(move || read(&path)).await else { continue };
            match read {
                Ok(all) => {
                    told = None;
                    if all != *self.now() {
                        tracing::info!(webhooks = all.len(), "the webhooks were read again");
                        *self.all.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(all);
                    }
                }
                Err(error) => {
                    let error = error.to_string();
                    if told.as_ref() != Some(&error) {
                        tracing::warn!(%error, "the webhooks were not read again: those that counted still do");
                        told = Some(error);
                    }
                }
            }
        }
    }
}

fn read(path: &Path) -> Result<Vec<Webhook>, Unusable> {
    let list = contents(path).and_then(|text| {
        let format = if text.starts_with(b"{") { Format::Json } else { Format::Yaml };
        let list: List = decode::value(&decode::parse(&text, format)?)?;
        list.check().map(|()| list)
    });
    let list = list.map_err(|problems| Unusable { path: path.to_owned(), problems })?;
    Ok(list.webhooks)
}

fn contents(path: &Path) -> Result<Vec<u8>, Problems> {
    let wrong = |what: String| Problems::one("", what, None);
    let text = std::fs::read(path).map_err(|error| wrong(format!("it can't be read: {error}")))?;
    match text.len() {
        0..=MAX_FILE_BYTES => Ok(text),
        _ => Err(wrong(format!("it has more than {MAX_FILE_BYTES} bytes"))),
    }
}
