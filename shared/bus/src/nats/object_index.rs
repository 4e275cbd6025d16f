//! Lists the objects under a prefix.
//!
//! A server finds an object by its full name only. So names that have an owner,
//! `<trace>.<child>.…`, are also in an index. For each the index has a message, written before the
//! object, under a subject that begins with the owner. The index is in the bucket's own stream, in
//! the subjects of chunks, where no client of the bucket looks.
//!
//! The time to list one owner's objects depends on their number, and not on the number of other
//! objects.

use base64::{Engine, engine::general_purpose::URL_SAFE};

use super::{super::fill::Storage, Error, Nats};

/// The number of tokens that name the owner: a trace and a context.
const OWNER_TOKENS: usize = 2;

impl Nats {
    /// The names under a prefix. With an owner's prefix they come from the index; otherwise all
    /// objects are listed. The index may name an object that was never stored, because its writer
    /// died between the two writes.
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
        let bucket = self.bucket(Storage::Objects);
        let wanted = format!("{}.{}.>", index_of(&bucket), owner.join("."));
        let subjects = self.subject_names(&format!("OBJ_{bucket}"), &wanted).await?;
        Ok(names(&subjects, prefix))
    }

    async fn all_objects(&self, prefix: &str) -> Result<Vec<String>, Error> {
        let mut subjects = Vec::new();
        for bucket in Storage::BUCKETS.map(|storage| self.bucket(storage)) {
            subjects.extend(self.subject_names(&format!("OBJ_{bucket}"), &format!("$O.{bucket}.M.>")).await?);
        }
        Ok(names(&subjects, prefix))
    }
}

/// The names at the ends of subjects, in order.
fn names(subjects: &[String], prefix: &str) -> Vec<String> {
    let name = |subject: &String| {
        let bytes = URL_SAFE.decode(subject.rsplit('.').next()?).ok()?;
        String::from_utf8(bytes).ok()
    };
    let names = subjects.iter().filter_map(name).filter(|name| name.starts_with(prefix));
    let mut names: Vec<String> = names.collect();
    names.sort_unstable();
    names
}

/// The subject of an object's metadata.
pub(super) fn meta_subject(bucket: &str, name: &str) -> String {
    format!("$O.{bucket}.M.{}", URL_SAFE.encode(name))
}

fn index_of(bucket: &str) -> String {
    format!("$O.{bucket}.C.index")
}

/// The subject of a name's entry in the index; none for a name without an owner.
pub(super) fn index_subject(bucket: &str, name: &str) -> Option<String> {
    let mut tokens = name.splitn(OWNER_TOKENS + 1, '.');
    let owner = [tokens.next()?, tokens.next()?];
    tokens.next()?;
    let indexed = owner.iter().all(|token| is_token(token));
    indexed.then(|| format!("{}.{}.{}", index_of(bucket), owner.join("."), URL_SAFE.encode(name)))
}

/// Returns true if the text can be a token of a subject.
pub(super) fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}
