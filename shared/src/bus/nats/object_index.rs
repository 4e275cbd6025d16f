//! Which objects there are under a prefix. A server finds an object by its full name only, so the names that have an
//! owner, `<trace>.<child>.…`, are also kept in an index: a message for each, written before the object, under a subject
//! that begins with the owner. It is in the bucket's own stream, among the chunks of objects, where no client of the
//! bucket looks for anything. To list the objects of one owner takes as long as it has objects, however many others
//! there are.

use std::time::Duration;

use async_nats::{HeaderMap, header};
use base64::{Engine, engine::general_purpose::URL_SAFE};
use bytes::Bytes;
use futures_util::StreamExt;

use super::{Error, Nats, failed};

const LIST_WITHIN: Duration = Duration::from_secs(60);
/// Tokens of a subject that name the owner: a trace and a context.
const OWNER_TOKENS: usize = 2;

impl Nats {
    /// Under the prefix of an owner, from the index; otherwise all objects are looked through. The index may have an
    /// object that was never stored, because its writer was lost in between.
    pub(in super::super) async fn objects(&self, prefix: &str) -> Result<Vec<String>, Error> {
        let owner: Vec<&str> = prefix.split('.').take(OWNER_TOKENS).collect();
        let complete = prefix.matches('.').count().min(OWNER_TOKENS);
        match owner.get(..complete) {
            Some(owner @ [_, ..]) if owner.iter().all(|token| is_token(token)) => {
                self.indexed(owner, prefix).await
            }
            Some(_) | None => self.all_objects(prefix).await,
        }
    }

    async fn indexed(&self, owner: &[&str], prefix: &str) -> Result<Vec<String>, Error> {
        let bucket = self.bucket();
        let wanted = format!("{}.{}.>", index_of(&bucket), owner.join("."));
        let subjects = self.subject_names(&format!("OBJ_{bucket}"), &wanted).await?;
        let name = |subject: &String| {
            let bytes = URL_SAFE.decode(subject.rsplit('.').next()?).ok()?;
            String::from_utf8(bytes).ok()
        };
        let names = subjects.iter().filter_map(name).filter(|name| name.starts_with(prefix));
        let mut names: Vec<String> = names.collect();
        names.sort_unstable();
        Ok(names)
    }

    async fn all_objects(&self, prefix: &str) -> Result<Vec<String>, Error> {
        let doing = || "listing the objects".to_owned();
        let store = self.store().await?;
        let list = async {
            let mut names = Vec::new();
            let mut listed = store.list().await.map_err(|error| failed(doing(), &error))?;
            while let Some(object) = listed.next().await {
                let object = object.map_err(|error| failed(doing(), &error))?;
                if !object.deleted && object.name.starts_with(prefix) {
                    names.push(object.name);
                }
            }
            names.sort_unstable();
            Ok(names)
        };
        let listed = tokio::time::timeout(LIST_WITHIN, list).await;
        listed.unwrap_or_else(|_| Err(failed(doing(), &"no answer in time")))
    }

    /// Puts a name into the index, if it has an owner. A second time replaces the first.
    pub(super) async fn announce(&self, name: &str) -> Result<(), Error> {
        let Some(subject) = index_subject(&self.bucket(), name) else { return Ok(()) };
        let doing = || format!("storing the name of the object `{name}`");
        let mut headers = HeaderMap::new();
        headers.insert(header::NATS_ROLLUP, "sub");
        let sent = self.0.api.publish_with_headers(subject, headers, Bytes::new()).await;
        let stored = sent.map_err(|error| failed(doing(), &error))?.await;
        stored.map(drop).map_err(|error| failed(doing(), &error))
    }

    /// Removes what is left of a deleted object: its name in the index, and the note that it was deleted, which
    /// would be kept as long as an object.
    pub(super) async fn forget(&self, name: &str) -> Result<(), Error> {
        let bucket = self.bucket();
        let doing = || format!("deleting the name of the object `{name}`");
        let stream = self.0.api.get_stream_no_info(format!("OBJ_{bucket}")).await;
        let stream = stream.map_err(|error| failed(doing(), &error))?;
        let note = format!("$O.{bucket}.M.{}", URL_SAFE.encode(name));
        for subject in [Some(note), index_subject(&bucket, name)].into_iter().flatten() {
            stream.purge().filter(&subject).await.map_err(|error| failed(doing(), &error))?;
        }
        Ok(())
    }
}

fn index_of(bucket: &str) -> String {
    format!("$O.{bucket}.C.index")
}

/// Where the index has a name; none for a name without an owner.
fn index_subject(bucket: &str, name: &str) -> Option<String> {
    let mut tokens = name.splitn(OWNER_TOKENS + 1, '.');
    let owner = [tokens.next()?, tokens.next()?];
    tokens.next()?;
    let indexed = owner.iter().all(|token| is_token(token));
    indexed.then(|| format!("{}.{}.{}", index_of(bucket), owner.join("."), URL_SAFE.encode(name)))
}

/// Whether it can be a part of a subject.
fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}
