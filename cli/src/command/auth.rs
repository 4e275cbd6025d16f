//! `trellis auth`: writes the keys and permissions of a deployment, as files that its servers read
//! (S1). Connects to no server.

use std::path::{Path, PathBuf};

use bus::role::{Kind, Role};
use domain::{id::PoolName, subject::Namespace};
use serde_json::json;

use crate::{
    cluster::{
        access::User,
        connect::Servers,
        keys::{Keys, REDIS_USERS},
    },
    terminal::{
        ending::Ending,
        output::{self, Output},
    },
};

const RELOAD: &str = "\
Afterwards the servers read the files anew: `nats-server --signal reload`, and `ACL LOAD` in Redis, as its user `doctor`. Include DIR/nats-auth.conf in the
configuration of nats-server (`include`), and name DIR/redis-users.acl in that of Redis (`aclfile`). Each user has a seed in DIR/keys, and a
file of variables beside it: `set -a; . DIR/keys/client.env; set +a`.";

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Make the keys of a deployment, and the files of its servers.
    ///
    /// A repetition makes missing keys, keeps existing ones, and writes the files of the servers again.
    #[command(after_help = RELOAD)]
    Init {
        /// The directory of the files.
        dir: PathBuf,
        /// Pools whose workers get a key.
        #[arg(long = "pool", value_name = "NAME", default_value = "default")]
        pools: Vec<PoolName>,
        /// Replace all keys: the existing ones stop working.
        #[arg(long)]
        force: bool,
    },
    /// Add the workers of a pool.
    #[command(after_help = RELOAD)]
    AddWorker { dir: PathBuf, pool: PoolName },
    /// Add a client, which submits, steers, cancels and reads runs. Its user is client-NAME.
    #[command(after_help = RELOAD)]
    AddClient { dir: PathBuf, name: PoolName },
    /// Add an observer, which reads runs and changes nothing. Its user is observer-NAME.
    #[command(after_help = RELOAD)]
    AddObserver { dir: PathBuf, name: PoolName },
    /// Add an administrator of agents, schedules, graphs, budgets, deletes and drains. Its user is admin-NAME.
    #[command(after_help = RELOAD)]
    AddAdmin { dir: PathBuf, name: PoolName },
    /// Give a user a new key: the old one stops working when the servers have read the files.
    #[command(after_help = RELOAD)]
    Rotate {
        dir: PathBuf,
        /// A user, such as `worker-default`, `admin-alice` (or `alice`, if no other user is called so), `redis-coordinator` or
        /// `redis-doctor`.
        name: String,
    },
}

pub(crate) fn run(command: Command, servers: &Servers, output: Output) -> anyhow::Result<Ending> {
    let namespace = servers.namespace();
    match command {
        Command::Init { dir, pools, force } => init(&dir, &pools, force, namespace, output),
        Command::AddWorker { dir, pool } => {
            let name = format!("worker-{pool}");
            add(&dir, Role::worker(pool, name), namespace, output)
        }
        Command::AddClient { dir, name } => add(&dir, named(Kind::Client, &name), namespace, output),
        Command::AddObserver { dir, name } => add(&dir, named(Kind::Observer, &name), namespace, output),
        Command::AddAdmin { dir, name } => add(&dir, named(Kind::Admin, &name), namespace, output),
        Command::Rotate { dir, name } => rotate(&dir, &name, namespace, output),
    }
}

fn named(kind: Kind, name: &PoolName) -> Role {
    Role::new(kind, format!("{kind}-{name}"))
}

fn init(
    dir: &Path,
    pools: &[PoolName],
    force: bool,
    namespace: &Namespace,
    output: Output,
) -> anyhow::Result<Ending> {
    let keys = Keys::open(dir, namespace)?;
    let mut made = Vec::new();
    for user in REDIS_USERS {
        let name = format!("redis-{user}.password");
        if keys.make_secret(&name, force)? {
            made.push(name);
        }
    }
    if keys.make_secret("log.key", false)? {
        made.push("log.key".into());
    }
    let plain = [Kind::Provisioner, Kind::Coordinator, Kind::Client, Kind::Observer, Kind::Admin];
    let roles = plain.into_iter().map(|kind| Role::new(kind, kind.name()));
    let workers = pools.iter().map(|pool| Role::worker(pool.clone(), format!("worker-{pool}")));
    for role in roles.chain(workers) {
        if keys.make_user(&role, force)? {
            made.push(format!("{}.nk", role.name));
        }
    }
    keys.write_configurations()?;
    tell(dir, &made, output)
}

fn add(dir: &Path, role: Role, namespace: &Namespace, output: Output) -> anyhow::Result<Ending> {
    let keys = existing(dir, namespace)?;
    let made = keys.make_user(&role, false)?.then(|| format!("{}.nk", role.name));
    keys.write_configurations()?;
    tell(dir, made.as_slice(), output)
}

fn rotate(dir: &Path, name: &str, namespace: &Namespace, output: Output) -> anyhow::Result<Ending> {
    let keys = existing(dir, namespace)?;
    let made = match name.strip_prefix("redis-").filter(|user| REDIS_USERS.contains(user)) {
        Some(_) => {
            let file = format!("{name}.password");
            keys.make_secret(&file, true)?;
            file
        }
        None => {
            let users = keys.users()?;
            // `alice` is short for `admin-alice`, unless a user of another role is called `alice`
            // too.
            let short = |user: &&User| {
                user.role.name.strip_prefix(user.role.kind.name()) == Some(&format!("-{name}"))
            };
            let exact = users.iter().find(|user| user.role.name == name);
            let mut alike = users.iter().filter(short);
            let Some(user) = exact.or_else(|| alike.next().filter(|_| alike.next().is_none())) else {
                let names: Vec<&str> = users.iter().map(|user| user.role.name.as_str()).collect();
                anyhow::bail!(
                    "no user, or more than one, is called `{name}`\n\nhint: the users are {}, redis-coordinator and redis-doctor",
                    names.join(", ")
                );
            };
            keys.make_user(&user.role, true)?;
            format!("{}.nk", user.role.name)
        }
    };
    keys.write_configurations()?;
    tell(dir, &[made], output)
}

fn existing(dir: &Path, namespace: &Namespace) -> anyhow::Result<Keys> {
    if !dir.join("nats-auth.conf").is_file() {
        anyhow::bail!(
            "{} contains no keys of a deployment\n\nhint: `trellis auth init {}` makes them",
            dir.display(),
            dir.display()
        );
    }
    Keys::open(dir, namespace)
}

fn tell(dir: &Path, made: &[String], output: Output) -> anyhow::Result<Ending> {
    match output {
        Output::Json => output::print_json(&json!({ "dir": dir.display().to_string(), "made": made }))?,
        Output::Text if made.is_empty() => output::print("nothing was missing\n")?,
        Output::Text => {
            let list: String =
                made.iter().map(|name| format!("made {}/keys/{name}\n", dir.display())).collect();
            output::print(&list)?;
        }
    }
    Ok(Ending::Completed)
}
