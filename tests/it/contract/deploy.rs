//! The files for running a cluster: the compose file, the Dockerfile and the servers'
//! configurations name only existing things, and the servers accept them. Tests have no Docker:
//! parts that need it are not tested.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use bus::role::{Kind, Role};
use domain::{
    agent_policy::AgentPolicy,
    decode::{self, Format},
};
use serde_json::Value;

pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

pub(super) fn file(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn compose() -> Value {
    decode::parse(file("docker-compose.yml").as_bytes(), Format::Yaml).unwrap()
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The files that `trellis auth init` makes and the compose file mounts: public files, and for each
/// process only its own secrets.
const MADE: [&str; 9] = [
    "nats-auth.conf",
    "redis-users.acl",
    "keys/provisioner.nk",
    "keys/coordinator.nk",
    "keys/log.key",
    "keys/redis-coordinator.password",
    "keys/worker-default.nk",
    "keys/client.nk",
    "tokens",
];

/// The sources with the options of our processes and their variables.
pub(super) fn options() -> String {
    let places = [
        "command/cli.rs",
        "command/serve.rs",
        "command/gateway.rs",
        "cluster/connect.rs",
        "cluster/credentials.rs",
        "input/log_keys.rs",
        "input/worker_config.rs",
    ];
    places.map(|place| file(&format!("cli/src/{place}"))).concat()
}

/// The role of one of our processes on NATS.
pub(super) fn role(process: &str) -> Role {
    let kind = match process {
        "provision" => Kind::Provisioner,
        "coordinator" => Kind::Coordinator,
        "gateway" => Kind::Client,
        "worker" => return Role::worker("default".parse().unwrap(), "worker-default"),
        other => panic!("{other} has no role"),
    };
    Role::new(kind, kind.name())
}

/// A field of a service, or of the block that it extends.
fn field<'a>(compose: &'a Value, service: &'a Value, name: &str) -> &'a Value {
    let shared = ["x-trellis", "x-hardened"].map(|block| &compose[block]);
    let trellis = service.get("image").is_none_or(is_ours);
    let blocks =
        [service].into_iter().chain(if trellis { &shared[..] } else { &shared[1..] }.iter().copied());
    blocks.map(|block| &block[name]).find(|value| !value.is_null()).unwrap_or(&Value::Null)
}

fn is_ours(image: &Value) -> bool {
    image.as_str().is_some_and(|image| image.starts_with("trellis"))
}

/// Finding: the shipped services ran with every capability, and workers could reach Redis.
#[test]
fn no_service_has_rights_that_it_does_not_need() {
    let compose = compose();
    let services = compose["services"].as_object().unwrap();
    for (name, service) in services {
        assert_eq!(texts(field(&compose, service, "cap_drop")), ["ALL"], "{name}");
        assert_eq!(texts(field(&compose, service, "security_opt")), ["no-new-privileges:true"], "{name}");
        assert_eq!(field(&compose, service, "read_only"), true, "{name}");
        for limit in ["mem_limit", "pids_limit"] {
            assert!(!field(&compose, service, limit).is_null(), "{name} has no {limit}");
        }
        for absent in ["privileged", "cap_add", "network_mode", "pid", "ipc", "devices"] {
            assert!(field(&compose, service, absent).is_null(), "{name} has {absent}");
        }
    }
    let networks = |name: &str| texts(&services[name]["networks"]);
    assert_eq!(networks("redis"), ["store"]);
    for (name, _) in services.iter().filter(|(name, _)| !["redis", "coordinator"].contains(&name.as_str())) {
        assert!(!networks(name).contains(&"store"), "{name} reaches Redis");
    }
    for name in ["bus", "store", "telemetry"] {
        assert_eq!(compose["networks"][name]["internal"], true, "{name} has a way out");
    }
}

/// Returns whether an image has a version of this many numbers and, if it has a digest, a complete
/// one.
fn is_exact(image: &str, parts: usize) -> bool {
    let (image, digest) =
        image.split_once('@').map_or((image, None), |(image, digest)| (image, Some(digest)));
    let tag = image.rsplit_once(':').map(|(_, tag)| tag).unwrap_or_default();
    let version = tag.split('-').next().unwrap_or_default();
    let numbers = version.split('.').filter(|part| part.parse::<u32>().is_ok()).count();
    let whole = |digest: &str| {
        let digits = digest.strip_prefix("sha256:").unwrap_or_default();
        digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    numbers == parts && version.split('.').count() == parts && digest.is_none_or(whole)
}

#[test]
fn an_image_is_exact_by_its_version_and_a_whole_digest() {
    let digest = format!("@sha256:{}", "a1".repeat(32));
    for image in ["nats:2.12.3-alpine", "trellis:0.1.0", &format!("nats:2.12.3-alpine{digest}")] {
        assert!(is_exact(image, 3), "{image}");
    }
    for image in [
        "nats",
        "nats:latest",
        "nats:2.12-alpine",
        "nats:2",
        "nats:2.12.3@sha256:a1",
        &format!("nats{digest}"),
    ] {
        assert!(!is_exact(image, 3), "{image}");
    }
    // The file shows how to find digests.
    assert!(file("docker-compose.yml").contains("docker buildx imagetools inspect"));
}

#[test]
fn the_compose_file_has_every_service_pinned_watched_and_kept() {
    let compose = compose();
    let services = compose["services"].as_object().unwrap();
    let names: BTreeSet<&str> = services.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        BTreeSet::from(["coordinator", "gateway", "jaeger", "nats", "provision", "redis", "worker"])
    );
    for (name, service) in services {
        let image =
            field(&compose, service, "image").as_str().unwrap_or_else(|| panic!("{name} has no image"));
        assert!(is_exact(image, 3), "{name}: `{image}` names no exact version");
        let restart = if name == "provision" { "no" } else { "unless-stopped" };
        assert_eq!(field(&compose, service, "restart"), restart, "{name}");
        assert!(
            service.get("container_name").is_none(),
            "{name}: a service with a container name can't be scaled"
        );
        for (needed, how) in service["depends_on"].as_object().into_iter().flatten() {
            assert!(names.contains(needed.as_str()), "{name} needs {needed}");
            let healthy = how["condition"] == "service_healthy";
            assert_eq!(
                healthy,
                services[needed].get("healthcheck").is_some(),
                "{name} needs {needed}: {how}"
            );
        }
        for volume in texts(&service["volumes"]) {
            let source = volume.split(':').next().unwrap();
            if let Some(path) = source.strip_prefix("./") {
                // `trellis auth init deploy/auth` makes these; a test of the roles starts servers
                // from them.
                let there = match path.strip_prefix("deploy/auth/") {
                    Some(made) => MADE.contains(&made),
                    None => root().join(path).is_file(),
                };
                assert!(there, "{name}: there is no {path}");
                assert!(volume.ends_with(":ro"), "{name}: {volume}");
            } else {
                assert!(compose["volumes"].get(source).is_some(), "{name}: no volume `{source}`");
            }
        }
        for port in texts(&service["ports"]) {
            assert!(port.starts_with("127.0.0.1:"), "{name}: {port} is not published on the loopback only");
        }
    }
    for name in ["nats", "redis", "coordinator", "worker", "gateway"] {
        assert!(services[name].get("healthcheck").is_some(), "{name}");
        assert!(services[name].get("stop_grace_period").is_some(), "{name}");
    }
    assert!(services["worker"].get("ports").is_none(), "a service with a published port can't be scaled");
    let environment = &compose["x-trellis"]["environment"];
    assert_eq!(environment["NATS_URL"], "nats://nats:4222");
    assert_eq!(environment["OTEL_EXPORTER_OTLP_ENDPOINT"], "http://jaeger:4318");
    assert_eq!(services["coordinator"]["environment"]["REDIS_URL"], "redis://redis:6379");
    for (name, service) in services {
        for secret in texts(&service["volumes"]).into_iter().filter(|volume| volume.contains("/keys/")) {
            let file = secret.split(':').next().unwrap().rsplit('/').next().unwrap();
            let of = file.trim_start_matches("redis-").split('.').next().unwrap();
            assert!(
                of == role(name).name || (name == "coordinator" && file == "log.key"),
                "{name} has {file}"
            );
        }
        if is_ours(field(&compose, service, "image")) {
            let (role, environment) = (role(name), &service["environment"]);
            assert_eq!(environment["NATS_INBOX"], role.inbox(), "{name}");
            assert_eq!(environment["NATS_JS_API"].as_str(), role.js_api(), "{name}");
        }
    }
    assert!(file("deploy/nats.conf").contains("\ninclude \"nats-auth.conf\"\n"));
    assert!(file("deploy/redis.conf").contains("\naclfile /etc/redis/users.acl\n"));
    let jaeger: Vec<_> = texts(&services["jaeger"]["ports"]);
    for port in ["4317", "4318", "16686"] {
        assert!(jaeger.iter().any(|mapping| mapping.ends_with(port)), "{jaeger:?}");
    }
}

#[test]
fn the_commands_of_the_compose_file_are_those_of_the_binary() {
    let compose = compose();
    let known = options();
    for (name, service) in compose["services"].as_object().unwrap() {
        if !is_ours(field(&compose, service, "image")) {
            continue;
        }
        let command = texts(&service["command"]);
        assert_eq!(command[0], name, "{command:?}");
        for flag in command.iter().filter_map(|word| word.strip_prefix("--")) {
            let field = format!(" {}:", flag.replace('-', "_"));
            assert!(known.contains(&field), "{name}: there is no --{flag}");
        }
        // The health check uses the address on which the process answers.
        if name == "provision" {
            continue;
        }
        let named = |word: &&&str| ["--health", "--listen"].contains(*word);
        let at = command.iter().skip_while(|word| !named(word)).nth(1).unwrap();
        let port = at.rsplit(':').next().unwrap();
        let asked = texts(&service["healthcheck"]["test"]);
        assert!(asked.iter().any(|word| word.contains(&format!(":{port}/readyz"))), "{asked:?}");
    }
    for (_, service) in compose["services"].as_object().unwrap() {
        for variable in service["environment"].as_object().into_iter().flatten().map(|(name, _)| name) {
            let ours = ["NATS_", "REDIS_", "TRELLIS_"].iter().any(|prefix| variable.starts_with(prefix));
            assert!(!ours || known.contains(&format!("env = \"{variable}\"")), "{variable}");
        }
    }
    for variable in ["NATS_URL", "REDIS_URL", "NATS_NKEY_FILE"] {
        assert!(known.contains(&format!("env = \"{variable}\"")), "{variable}");
    }
}

/// A user's settings for their own workers reach them: the key of every provider, other variables,
/// settings and a policy, as files that are valid as shipped.
#[test]
fn the_workers_of_the_compose_file_have_keys_settings_and_a_policy() {
    let compose = compose();
    let worker = &compose["services"]["worker"];
    let settings = file("worker/src/settings.rs");
    let keys = settings.split('"').filter(|word| word.ends_with("_API_KEY") && !word.contains(' '));
    let keys: BTreeSet<&str> = keys.collect();
    assert!(keys.len() >= 3, "{keys:?}");
    for key in keys {
        assert_eq!(worker["environment"][key], format!("${{{key}:-}}"), "{key} does not reach workers");
    }
    let other = &worker["env_file"][0];
    assert_eq!((&other["path"], &other["required"]), (&"deploy/worker.env".into(), &false.into()));
    assert!(
        file(".gitignore").lines().any(|line| line == "/deploy/worker.env"),
        ".gitignore lacks the file with keys"
    );
    for (variable, shipped) in
        [("TRELLIS_WORKER_CONFIG", "./deploy/worker.toml"), ("TRELLIS_WORKER_POLICY", "./deploy/policy.yaml")]
    {
        let inside = worker["environment"][variable].as_str().unwrap();
        let mounted = format!("{shipped}:{inside}:ro");
        assert!(texts(&worker["volumes"]).contains(&mounted.as_str()), "{mounted}");
    }
    let document: Value = toml::from_str(&file("deploy/worker.toml")).unwrap();
    decode::value::<worker::Settings>(&document).unwrap().check().unwrap();
    // The commented lines are an example.
    let example: String = file("deploy/worker.toml")
        .lines()
        .filter_map(|line| {
            line.strip_prefix("# ").filter(|line| line.starts_with('[') || line.contains(" = "))
        })
        .map(|line| format!("{line}\n"))
        .collect();
    let document: Value = toml::from_str(&example).unwrap();
    let example = decode::value::<worker::Settings>(&document).unwrap();
    assert!(example.providers.contains_key("local"), "{example:?}");
    let document = decode::parse(file("deploy/policy.yaml").as_bytes(), Format::Yaml).unwrap();
    let policy = decode::value::<AgentPolicy>(&document).unwrap();
    assert!(policy.programs.is_empty() && !policy.network, "the shipped policy allows programs: {policy:?}");
}

#[test]
fn the_dockerfile_is_pinned_and_runs_as_an_ordinary_user() {
    let dockerfile = file("Dockerfile");
    let instructions = || dockerfile.lines().map(str::trim);
    let manifest = file("Cargo.toml");
    let mut stages = BTreeSet::new();
    for from in instructions().filter_map(|line| line.strip_prefix("FROM ")) {
        let image = from.split_whitespace().next().unwrap();
        stages.extend(from.split_once(" AS ").map(|(_, stage)| stage));
        if stages.contains(image) {
            continue;
        }
        // The versions of the operating system have two parts.
        let parts = if image.starts_with("debian:") { 2 } else { 3 };
        assert!(is_exact(image, parts), "{from} is not pinned");
    }
    let toolchain = manifest.lines().find_map(|line| line.strip_prefix("rust-version = ")).unwrap();
    assert!(
        dockerfile.contains(&format!("FROM rust:{}.", toolchain.trim_matches('"'))),
        "the Dockerfile has another toolchain"
    );
    let version =
        manifest.lines().find_map(|line| line.strip_prefix("version = ")).unwrap().trim_matches('"');
    let compose = compose();
    for (service, stage, image) in [
        (&compose["x-trellis"], "trellis", format!("trellis:{version}")),
        (&compose["services"]["worker"], "worker", format!("trellis-worker:{version}")),
    ] {
        assert_eq!(service["image"], image);
        assert_eq!(service["build"]["target"], stage);
        let made = dockerfile
            .split("\nFROM ")
            .find(|text| text.lines().next().is_some_and(|from| from.ends_with(&format!(" AS {stage}"))));
        let made = made.unwrap_or_else(|| panic!("there is no stage {stage}"));
        let user = made.lines().filter_map(|line| line.strip_prefix("USER ")).next_back().unwrap();
        assert!(user.parse::<u32>().is_ok_and(|uid| uid > 0), "{stage}: {user}");
        assert!(made.contains("ENTRYPOINT [\"/usr/local/bin/trellis\"]"), "{stage}");
        // The interpreters for program agents and MCP servers.
        let interpreters = ["python3", "nodejs"].iter().all(|package| made.contains(package));
        assert_eq!(interpreters, stage == "worker", "{stage}");
    }
    let last = instructions().filter_map(|line| line.strip_prefix("FROM ")).next_back().unwrap();
    assert!(last.ends_with(" AS trellis"), "a build without a stage builds {last}");
}

fn server(name: &str, variable: &str) -> PathBuf {
    let named = std::env::var_os(variable).map(PathBuf::from);
    let path = named.unwrap_or_else(|| root().join(".tools/bin").join(name));
    assert!(
        path.exists(),
        "{name} is not at {}\n\nhint: run scripts/servers once, or set {variable}",
        path.display()
    );
    path
}

#[test]
fn nats_takes_its_configuration_and_keeps_what_it_acknowledges() {
    let path = server("nats-server", "TRELLIS_NATS_SERVER");
    let dir = std::env::temp_dir().join(format!("trellis-nats-conf-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::copy(root().join("deploy/nats.conf"), dir.join("nats.conf")).unwrap();
    let check = || Command::new(&path).arg("-t").arg("-c").arg(dir.join("nats.conf")).output().unwrap();
    assert!(!check().status.success(), "NATS starts without permissions");
    std::fs::write(dir.join("nats-auth.conf"), "accounts { CORE { jetstream: enabled } }\n").unwrap();
    let checked = check();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    std::fs::remove_dir_all(&dir).unwrap();
    let text = file("deploy/nats.conf");
    assert!(text.contains("\n  sync_interval: always\n") && text.contains("\nmax_payload: 8MB\n"), "{text}");
}

#[test]
fn redis_takes_its_configuration_and_keeps_what_it_acknowledges() {
    let path = server("redis-server", "TRELLIS_REDIS_SERVER");
    let dir = std::env::temp_dir().join(format!("trellis-redis-conf-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let users = dir.join("users.acl");
    std::fs::write(&users, "user default on nopass ~* +@all\n").unwrap();
    let port = trellis_tests::servers::free_port();
    let mut started = Command::new(path)
        .arg(root().join("deploy/redis.conf"))
        .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--aclfile"])
        .arg(&users)
        .arg("--dir")
        .arg(&dir)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let asked = (0..2_000).find_map(|_| {
        std::thread::sleep(Duration::from_millis(50));
        let client = redis::Client::open(format!("redis://127.0.0.1:{port}")).unwrap();
        let mut connection = client.get_connection_with_timeout(Duration::from_secs(1)).ok()?;
        let get = |name: &str| redis::cmd("CONFIG").arg("GET").arg(name).to_owned();
        let ask = |command: redis::Cmd, connection: &mut redis::Connection| {
            command.query::<Vec<String>>(connection).ok()?.pop()
        };
        Some(
            ["appendonly", "appendfsync", "maxmemory-policy", "maxmemory"]
                .map(|name| ask(get(name), &mut connection)),
        )
    });
    started.kill().unwrap();
    started.wait().unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    let most = 2_u64 << 30;
    let expected = ["yes", "always", "noeviction", &most.to_string()].map(|word| Some(word.to_owned()));
    assert_eq!(asked.expect("Redis answers"), expected);
    let compose = compose();
    let limit = field(&compose, &compose["services"]["redis"], "mem_limit");
    let bytes =
        limit.as_str().and_then(|text| text.strip_suffix('g')?.parse::<u64>().ok()).map(|gib| gib << 30);
    assert!(bytes.is_some_and(|bytes| bytes >= 2 * most), "a rewrite needs as much again: {limit}");
}
