//! The permissions of Redis' user `default`, which decide how much of its append-only file a
//! restart of Redis restores.

use std::collections::BTreeMap;

use redis::Value;

use super::{
    super::{DefaultUser, Error},
    Redis,
    reply::decode,
    unavailable,
};

impl Redis {
    pub(in super::super) async fn default_user(&self) -> Result<DefaultUser, Error> {
        let doing = "read the permissions of the user `default` in Redis";
        let mut command = redis::cmd("ACL");
        command.arg("GETUSER").arg("default");
        let answer = self.link.ask_if_permitted(command, &self.keys.coordinators()).await;
        let Some(answer) = answer.map_err(unavailable(doing))? else { return Ok(DefaultUser::Hidden) };
        let rights: BTreeMap<String, Value> = decode(doing, answer)?;
        let words = |name: &str| rights.get(name).map(words).unwrap_or_default();
        // Redis lists a rule for all commands or all keys first. Redis 6 lists a key pattern
        // without `~`.
        let commands = words("commands").first().is_some_and(|rule| rule == "+@all");
        let keys = words("keys").iter().any(|pattern| ["~*", "*"].contains(&pattern.as_str()));
        Ok(if commands && keys { DefaultUser::Unrestricted } else { DefaultUser::Restricted })
    }
}

/// The words of a text, or the texts of a list: versions of Redis differ in the form.
fn words(value: &Value) -> Vec<String> {
    match redis::from_redis_value_ref::<String>(value) {
        Ok(text) => text.split_whitespace().map(str::to_owned).collect(),
        Err(_) => redis::from_redis_value_ref(value).unwrap_or_default(),
    }
}
