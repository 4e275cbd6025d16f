//! The packages for users: the systemd units name only existing things and have the restrictions
//! that they promise, and engines can read the image. scripts/package itself, with a release, is
//! run by hand.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Read,
    path::{Path, PathBuf},
    process::Command,
};

use domain::digest::sha256;
use flate2::read::GzDecoder;
use serde_json::Value;

use super::deploy::{file, options, role, root};

/// The settings of a unit, each with all its values.
struct Unit(BTreeMap<String, Vec<String>>);

impl Unit {
    fn read(path: &str) -> Unit {
        let mut settings: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for line in file(path).lines().filter(|line| !line.starts_with(['#', '['])) {
            if let Some((name, value)) = line.split_once('=') {
                settings.entry(name.to_owned()).or_default().push(value.to_owned());
            }
        }
        Unit(settings)
    }

    fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.get(name).into_iter().flatten().map(String::as_str)
    }

    fn one(&self, name: &str) -> &str {
        let mut values = self.all(name);
        let value = values.next().unwrap_or_else(|| panic!("no {name}"));
        assert!(values.next().is_none(), "{name} twice");
        value
    }
}

fn units() -> [(&'static str, Unit); 3] {
    [("coordinator", ""), ("gateway", ""), ("worker", "@")]
        .map(|(process, at)| (process, Unit::read(&format!("deploy/systemd/trellis-{process}{at}.service"))))
}

#[test]
fn the_units_of_systemd_name_what_the_binary_and_auth_init_have() {
    let known = options();
    for (process, unit) in units() {
        let words: Vec<&str> = unit.one("ExecStart").split_whitespace().collect();
        assert_eq!(words[..2], ["/usr/local/bin/trellis", process]);
        for flag in words.iter().filter_map(|word| word.strip_prefix("--")) {
            let field = format!(" {}:", flag.replace('-', "_"));
            assert!(known.contains(&field), "{process}: there is no --{flag}");
        }
        let role = role(process);
        let mut credentials: BTreeSet<&str> = BTreeSet::new();
        for credential in unit.all("LoadCredential") {
            let (name, from) = credential.split_once(':').unwrap();
            credentials.insert(name);
            let made = from.strip_prefix("/etc/trellis/keys/").unwrap().replace("%i", "default");
            let of = made.trim_start_matches("redis-").split('.').next().unwrap();
            assert!(
                of == role.name || (process == "coordinator" && made == "log.key"),
                "{process} has {made}"
            );
        }
        let mut used = BTreeSet::new();
        for variable in unit.all("Environment") {
            let (name, value) = variable.split_once('=').unwrap();
            assert!(known.contains(&format!("env = \"{name}\"")), "{process}: no option reads {name}");
            used.extend(value.strip_prefix("%d/"));
            let value = value.replace("%i", "default");
            match name {
                "NATS_INBOX" => assert_eq!(value, role.inbox()),
                "NATS_JS_API" => assert_eq!(Some(value.as_str()), role.js_api()),
                _ => {}
            }
        }
        let sets =
            |name: &str| unit.all("Environment").any(|variable| variable.starts_with(&format!("{name}=")));
        assert!(sets("NATS_INBOX") && sets("NATS_JS_API") == role.js_api().is_some(), "{process}");
        assert_eq!(used, credentials, "{process}");
        for own in unit.all("EnvironmentFile") {
            assert!(own.starts_with("-/etc/trellis/"), "{process}: {own} is not optional");
        }
    }
}

#[test]
fn the_units_of_systemd_have_no_rights_that_they_do_not_need() {
    for (process, unit) in units() {
        for (name, value) in [
            ("DynamicUser", "yes"),
            ("NoNewPrivileges", "yes"),
            ("CapabilityBoundingSet", ""),
            ("ProtectSystem", "strict"),
            ("ProtectHome", "yes"),
            ("PrivateTmp", "yes"),
            ("PrivateDevices", "yes"),
            ("RestrictSUIDSGID", "yes"),
            ("Restart", "on-failure"),
        ] {
            assert_eq!(unit.one(name), value, "{process}: {name}");
        }
        // Each of these would remove a layer of the sandbox around programs, or break programs that
        // compile as they run.
        for name in [
            "ProtectProc",
            "ProcSubset",
            "ProtectKernelTunables",
            "ProtectKernelLogs",
            "ProtectControlGroups",
            "PrivateUsers",
            "MemoryDenyWriteExecute",
            "SystemCallFilter",
        ] {
            assert_eq!(unit.0.contains_key(name), process != "worker", "{process}: {name}");
        }
    }
    let [(_, coordinator), _, (_, worker)] = units();
    let namespaces: BTreeSet<&str> = worker.one("RestrictNamespaces").split(' ').collect();
    assert_eq!(namespaces, BTreeSet::from(["user", "pid", "net", "mnt", "ipc"]));
    assert_eq!(worker.one("Delegate"), "memory pids");
    // systemd does not kill a process that drains.
    let seconds = |unit: &Unit| unit.one("TimeoutStopSec").parse::<u64>().unwrap();
    let words: Vec<&str> = worker.one("ExecStart").split_whitespace().collect();
    let drain = words.iter().skip_while(|word| **word != "--drain").nth(1).unwrap();
    assert!(drain.trim_end_matches('s').parse::<u64>().unwrap() < seconds(&worker));
    let source = file("coordinator/src/run.rs");
    let drain = source.split("DRAIN_TIMEOUT: Duration = Duration::from_secs(").nth(1).unwrap();
    assert!(drain.split(')').next().unwrap().parse::<u64>().unwrap() < seconds(&coordinator));
}

fn image(dir: &Path, name: &str, more: &[&str]) -> PathBuf {
    let archive = dir.join(name);
    let mut python = Command::new("python3");
    python.arg("-B").arg(root().join("scripts/image.py")).arg("--binary").arg(dir.join("binary"));
    python
        .args(["--version", "1.2.3", "--machine", "x86_64", "--time", "1700000000"])
        .args(more)
        .arg(&archive);
    let made = python.output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    archive
}

/// Unpacks a tar archive. Returns its members with their modes, owners and times.
fn unpack(archive: &Path, to: &Path) -> String {
    std::fs::create_dir_all(to).unwrap();
    let mut list = Command::new("tar");
    let list =
        list.args(["--list", "--verbose", "--numeric-owner", "--utc", "--full-time", "--file"]).arg(archive);
    let listed = list.output().unwrap();
    let unpacked = Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(to).status().unwrap();
    assert!(unpacked.success() && listed.status.success());
    String::from_utf8(listed.stdout).unwrap()
}

/// proves: every blob matches its digest, the layer has the worker's needs and no traces of the
/// build machine, and the same input gives the same bytes.
#[test]
fn the_image_is_whole_and_the_same_each_time() {
    let dir = std::env::temp_dir().join(format!("trellis-image-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("binary"), b"a binary").unwrap();
    std::fs::write(dir.join("ca.pem"), b"certificates").unwrap();
    let certificates = dir.join("ca.pem");
    let certificates = ["--certificates", certificates.to_str().unwrap()];
    let archive = image(&dir, "a.tar", &certificates);
    let again = image(&dir, "b.tar", &certificates);
    assert_eq!(std::fs::read(&archive).unwrap(), std::fs::read(&again).unwrap());
    let without = image(&dir, "c.tar", &[]);
    assert_ne!(std::fs::read(&archive).unwrap(), std::fs::read(&without).unwrap());

    let layout = dir.join("layout");
    unpack(&archive, &layout);
    let json = |path: &Path| -> Value { serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap() };
    assert_eq!(json(&layout.join("oci-layout"))["imageLayoutVersion"], "1.0.0");
    let blob = |of: &Value| {
        let digest = of["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap().to_owned();
        let path = layout.join("blobs/sha256").join(&digest);
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!((sha256(&bytes), bytes.len() as u64), (digest, of["size"].as_u64().unwrap()));
        path
    };
    let index = json(&layout.join("index.json"));
    let manifest = json(&blob(&index["manifests"][0]));
    let config = json(&blob(&manifest["config"]));
    let packed = std::fs::File::open(blob(&manifest["layers"][0])).unwrap();
    let mut plain = Vec::new();
    GzDecoder::new(packed).read_to_end(&mut plain).unwrap();
    assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{}", sha256(&plain)));
    assert_eq!(config["architecture"], "amd64");
    let blobs = std::fs::read_dir(layout.join("blobs/sha256")).unwrap().count();
    assert_eq!(blobs, 3, "the archive has other blobs");

    // The same values as in the Dockerfile.
    let dockerfile = file("Dockerfile");
    let said =
        |name: &str| dockerfile.lines().filter_map(|line| line.strip_prefix(name)).next_back().unwrap();
    assert_eq!(config["config"]["User"], said("USER "));
    assert_eq!(config["config"]["Entrypoint"].to_string(), said("ENTRYPOINT "));
    assert_eq!(config["config"]["Cmd"].to_string(), said("CMD "));

    std::fs::write(dir.join("layer.tar"), &plain).unwrap();
    let listed = unpack(&dir.join("layer.tar"), &dir.join("root"));
    for line in listed.lines() {
        assert!(line.contains(" 0/0 ") && line.contains(" 2023-11-14 22:13:20 "), "{line}");
    }
    let has = |mode: &str, path: &str| {
        let found = listed.lines().any(|line| line.starts_with(mode) && line.ends_with(&format!(" {path}")));
        assert!(found, "{mode} {path}:\n{listed}");
    };
    has("-rwxr-xr-x", "usr/local/bin/trellis");
    has("-rw-r--r--", "etc/ssl/certs/ca-certificates.crt");
    has("drwxrwxrwt", "tmp/");
    assert_eq!(std::fs::read(dir.join("root/usr/local/bin/trellis")).unwrap(), b"a binary");
    let users = std::fs::read_to_string(dir.join("root/etc/passwd")).unwrap();
    assert!(users.contains(&format!(":x:{0}:{0}:", said("USER "))), "{users}");
    std::fs::remove_dir_all(&dir).unwrap();
}
