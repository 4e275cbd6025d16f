//! The files of `trellis auth`. Seeds and passwords are readable by their owner only, and replaced
//! only on request. The servers' files are written again from the public keys. Every file is
//! written whole or not at all.

use std::{
    fs,
    io::{Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use anyhow::Context;
use bus::role::{Kind, Role};
use domain::{id::PoolName, subject::Namespace};

use crate::cluster::access::{self, User};

/// The subdirectory of keys and passwords.
const KEYS: &str = "keys";
const SECRET: u32 = 0o600;
const PUBLIC: u32 = 0o644;
/// The users of Redis. Each has a password.
pub(crate) const REDIS_USERS: [&str; 2] = ["coordinator", "doctor"];

pub(crate) struct Keys {
    dir: PathBuf,
    namespace: Namespace,
}

impl Keys {
    pub(crate) fn open(dir: &Path, namespace: &Namespace) -> anyhow::Result<Self> {
        let keys = dir.join(KEYS);
        fs::DirBuilder::new().recursive(true).mode(0o755).create(dir).with_context(|| unwritable(dir))?;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&keys).with_context(|| unwritable(&keys))?;
        let closed = fs::Permissions::from_mode(0o700);
        fs::set_permissions(&keys, closed).with_context(|| unwritable(&keys))?;
        Ok(Keys { dir: dir.to_owned(), namespace: namespace.clone() })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(KEYS).join(name)
    }

    /// Creates the key pair of a user unless its public key exists. The public key stays here even
    /// if the seed was moved elsewhere.
    pub(crate) fn make_user(&self, role: &Role, anew: bool) -> anyhow::Result<bool> {
        let public = self.path(&format!("{}.pub", role.name));
        if public.exists() && !anew {
            return Ok(false);
        }
        let pair = nkeys::KeyPair::new_user();
        let seed = pair.seed().map_err(|error| anyhow::anyhow!("no key could be made: {error}"))?;
        write(&self.path(&format!("{}.nk", role.name)), SECRET, &format!("{seed}\n"))?;
        let pool = role.pool.as_ref().map_or_else(String::new, |pool| format!(" {pool}"));
        write(&public, PUBLIC, &format!("{} {}{pool}\n", pair.public_key(), role.kind))?;
        self.write_environment(role)?;
        Ok(true)
    }

    /// Writes 32 random bytes as hexadecimal digits, unless the file exists.
    pub(crate) fn make_secret(&self, name: &str, anew: bool) -> anyhow::Result<bool> {
        let path = self.path(name);
        if path.exists() && !anew {
            return Ok(false);
        }
        let mut bytes = [0_u8; 32];
        let system = fs::File::open("/dev/urandom").and_then(|mut system| system.read_exact(&mut bytes));
        system.context("the system has no random numbers")?;
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        write(&path, SECRET, &format!("{digits}\n"))?;
        Ok(true)
    }

    /// The variables of a user, for a shell: `set -a; . FILE`. Every file sets all of them, and an
    /// empty one is treated as unset. So no variable of a role that the same shell had before
    /// remains.
    fn write_environment(&self, role: &Role) -> anyhow::Result<()> {
        let absolute = |name: String| {
            let path = self.path(&name);
            path.canonicalize().unwrap_or(path).display().to_string()
        };
        let seed = absolute(format!("{}.nk", role.name));
        let (inbox, js_api) = (role.inbox(), role.js_api().unwrap_or_default());
        let [user, password, log_key] = match role.kind {
            Kind::Coordinator => [
                "coordinator".to_owned(),
                absolute("redis-coordinator.password".into()),
                absolute("log.key".into()),
            ],
            Kind::Provisioner | Kind::Worker | Kind::Client | Kind::Observer | Kind::Admin => {
                Default::default()
            }
        };
        let text = format!(
            "NATS_NKEY_FILE={seed}\nNATS_INBOX={inbox}\nNATS_JS_API={js_api}\nREDIS_USER={user}\n\
             REDIS_PASSWORD_FILE={password}\nTRELLIS_LOG_KEY_FILE={log_key}\n"
        );
        write(&self.path(&format!("{}.env", role.name)), SECRET, &text)
    }

    /// All users, read from the files of their public keys.
    pub(crate) fn users(&self) -> anyhow::Result<Vec<User>> {
        let keys = self.dir.join(KEYS);
        let mut users = Vec::new();
        for entry in fs::read_dir(&keys).with_context(|| format!("can't read {}", keys.display()))? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "pub") {
                users.push(user(&path)?);
            }
        }
        users.sort_by(|one, other| one.role.name.cmp(&other.role.name));
        Ok(users)
    }

    /// Writes the files that the servers read.
    pub(crate) fn write_configurations(&self) -> anyhow::Result<()> {
        let users = self.users()?;
        write(&self.dir.join("nats-auth.conf"), PUBLIC, &access::nats(&self.namespace, &users))?;
        let password = |user: &str| {
            let path = self.path(&format!("redis-{user}.password"));
            let text = fs::read_to_string(&path).with_context(|| format!("can't read {}", path.display()))?;
            Ok::<_, anyhow::Error>(text.trim().to_owned())
        };
        let [coordinator, doctor] = REDIS_USERS.map(password);
        let users = access::redis(&self.namespace, &coordinator?, &doctor?);
        write(&self.dir.join("redis-users.acl"), PUBLIC, &users)
    }
}

/// Reads a user from a line `<public key> <role>[ <pool>]`.
fn user(path: &Path) -> anyhow::Result<User> {
    let wrong = || format!("{} is not a public key from `trellis auth`", path.display());
    let name = path.file_stem().and_then(|name| name.to_str()).with_context(wrong)?;
    let text = fs::read_to_string(path).with_context(|| format!("can't read {}", path.display()))?;
    let mut words = text.split_whitespace();
    let public = words.next().with_context(wrong)?.to_owned();
    nkeys::KeyPair::from_public_key(&public).map_err(|_| anyhow::anyhow!(wrong()))?;
    let kind = words.next().and_then(|word| Kind::ALL.into_iter().find(|kind| kind.name() == word));
    let kind = kind.with_context(wrong)?;
    let role = match (kind, words.next()) {
        (Kind::Worker, Some(pool)) => Role::worker(PoolName::new(pool).with_context(wrong)?, name),
        (Kind::Worker, None) => anyhow::bail!(wrong()),
        (kind, _) => Role::new(kind, name),
    };
    Ok(User { role, public })
}

/// Writes the whole file or nothing: to a new file, which is then renamed.
fn write(path: &Path, mode: u32, text: &str) -> anyhow::Result<()> {
    if fs::read_to_string(path).is_ok_and(|there| there == text) {
        return Ok(());
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    let written = (|| {
        let _ = fs::remove_file(&beside);
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, path)
    })();
    written.with_context(|| unwritable(path))
}

fn unwritable(path: &Path) -> String {
    format!("can't write {}", path.display())
}
