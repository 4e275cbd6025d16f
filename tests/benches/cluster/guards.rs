//! The cost of security and of telemetry: the same load on several deployments in the same run. For
//! security: a plain one, one whose coordinators sign what they store (`--log-key-file`), one with
//! TLS, one with a role for every process. For telemetry: a plain one, one with a collector of
//! metrics, and two with a collector of spans, for no run and for all. The figures are ratios to
//! the plain deployment.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use bus::{Connect, Login};
use domain::tls::Tls;
use trellis_tests::servers::{NatsServer, RedisServer, Rotel, exporting_to, free_port};

use crate::{
    IN_FLIGHT, Options,
    trellis::{self, Trellis},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Guard {
    None,
    Keys,
    Tls,
    Roles,
    /// Metrics are exported.
    Metrics,
    /// A collector is configured, but no run is exported.
    Unsampled,
    /// Every run is exported.
    Spans,
}

impl Guard {
    pub(crate) const SAFE: [Guard; 4] = [Guard::None, Guard::Keys, Guard::Tls, Guard::Roles];
    pub(crate) const SEEN: [Guard; 4] = [Guard::None, Guard::Metrics, Guard::Unsampled, Guard::Spans];

    fn name(self) -> &'static str {
        match self {
            Guard::None => "plain",
            Guard::Keys => "log keys",
            Guard::Tls => "TLS",
            Guard::Roles => "roles",
            Guard::Metrics => "metrics",
            Guard::Unsampled => "spans of no run",
            Guard::Spans => "spans of every run",
        }
    }
}

/// The addresses and credentials of a deployment, for its processes and for this one as a client.
pub(crate) struct Access {
    dir: PathBuf,
    pub(crate) nats: NatsServer,
    pub(crate) redis: RedisServer,
    redis_url: String,
    rotel: Option<Rotel>,
    guard: Guard,
}

impl Access {
    fn start(guard: Guard) -> Self {
        let dir = std::env::temp_dir().join(format!("trellis-bench-{}-{}", guard.name(), std::process::id()));
        let dir = PathBuf::from(dir.to_string_lossy().replace(' ', "-"));
        std::fs::remove_dir_all(&dir).ok();
        std::fs::create_dir_all(&dir).unwrap();
        let path = |name: &str| dir.join(name).to_string_lossy().into_owned();
        let (nats, redis, redis_url);
        match guard {
            Guard::None | Guard::Keys | Guard::Metrics | Guard::Unsampled | Guard::Spans => {
                std::fs::write(dir.join("log.key"), format!("{}\n", "5a".repeat(32))).unwrap();
                (nats, redis) = (NatsServer::start(), RedisServer::start());
                redis_url = redis.url();
            }
            Guard::Tls => {
                certificates(&dir);
                let tls = format!(
                    "tls {{ cert_file: \"{}\", key_file: \"{}\" }}",
                    path("server.pem"),
                    path("server.key")
                );
                nats = NatsServer::start_with("", &tls);
                let port = free_port().to_string();
                redis = RedisServer::start_with(&[
                    "--tls-port",
                    &port,
                    "--tls-auth-clients",
                    "no",
                    "--tls-cert-file",
                    &path("server.pem"),
                    "--tls-key-file",
                    &path("server.key"),
                    "--tls-ca-cert-file",
                    &path("ca.pem"),
                ]);
                redis_url = format!("rediss://127.0.0.1:{port}");
            }
            Guard::Roles => {
                run(Command::new(trellis::binary()).args(["auth", "init"]).arg(&dir));
                let accounts = std::fs::read_to_string(dir.join("nats-auth.conf")).unwrap();
                nats = NatsServer::start_with("", &accounts);
                redis = RedisServer::start_with(&["--aclfile", &path("redis-users.acl")]);
                redis_url = redis.url();
            }
        }
        let exports = matches!(guard, Guard::Metrics | Guard::Unsampled | Guard::Spans);
        let rotel = exports.then(Rotel::start_without_collector);
        let access = Access { dir, nats, redis, redis_url, rotel, guard };
        if guard == Guard::Roles {
            let mut provision = Command::new(trellis::binary());
            provision.arg("provision").args(SIZES).envs(access.environment("provisioner"));
            run(&mut provision);
        }
        access
    }

    /// A deployment without a guard.
    pub(crate) fn plain(nats: NatsServer, redis: RedisServer) -> Self {
        let (dir, redis_url) = (PathBuf::new(), redis.url());
        Access { dir, nats, redis, redis_url, rotel: None, guard: Guard::None }
    }

    /// The variables of a process: `coordinator`, `worker` or `provisioner`.
    pub(crate) fn environment(&self, process: &str) -> Vec<(String, String)> {
        let path = |name: &str| self.dir.join(name).to_string_lossy().into_owned();
        let mut all =
            vec![("NATS_URL".into(), self.nats.url()), ("REDIS_URL".into(), self.redis_url.clone())];
        let collector = self.rotel.iter().flat_map(|rotel| exporting_to(&rotel.http_url(), "http/protobuf"));
        all.extend(collector);
        match self.guard {
            Guard::None | Guard::Spans => {}
            Guard::Metrics => {
                all.retain(|(name, _)| name != "OTEL_METRICS_EXPORTER");
                all.push(("OTEL_TRACES_EXPORTER".into(), "none".into()));
                all.push(("OTEL_METRIC_EXPORT_INTERVAL".into(), "5000".into()));
            }
            Guard::Unsampled => all.push(("OTEL_TRACES_SAMPLER".into(), "always_off".into())),
            Guard::Keys if process == "coordinator" => {
                all.push(("TRELLIS_LOG_KEY_FILE".into(), path("log.key")))
            }
            Guard::Keys => {}
            Guard::Tls => {
                all.push(("NATS_TLS".into(), "required".into()));
                all.extend(["NATS_CA", "REDIS_CA"].map(|name| (name.to_owned(), path("ca.pem"))));
            }
            Guard::Roles => {
                let who = if process == "worker" { "worker-default" } else { process };
                let text = std::fs::read_to_string(self.dir.join(format!("keys/{who}.env"))).unwrap();
                let pairs = text.lines().filter_map(|line| line.split_once('='));
                // The log key is measured by its own guard.
                let others = pairs.filter(|(name, _)| *name != "TRELLIS_LOG_KEY_FILE");
                all.extend(others.map(|(name, value)| (name.to_owned(), value.to_owned())));
            }
        }
        all
    }

    /// Further options of a coordinator.
    pub(crate) fn sizes(&self) -> &'static [&'static str] {
        if self.guard == Guard::Roles { &SIZES } else { &[] }
    }

    pub(crate) fn client(&self) -> Connect {
        let mut to = Connect::new(self.nats.url(), Default::default(), "bench");
        match self.guard {
            Guard::None | Guard::Keys | Guard::Metrics | Guard::Unsampled | Guard::Spans => {}
            Guard::Tls => {
                to.tls = Tls { required: true, ca: Some(self.dir.join("ca.pem")), certificate: None }
            }
            Guard::Roles => {
                to.login = Login { nkey: Some(self.dir.join("keys/client.nk")), ..Login::default() };
                (to.inbox, to.js_api) = (Some("_INBOX_client".into()), Some("JS.API".into()));
            }
        }
        to
    }
}

impl Drop for Access {
    fn drop(&mut self) {
        if self.dir.is_absolute() {
            std::fs::remove_dir_all(&self.dir).ok();
        }
    }
}

/// The sizes of the streams. Coordinators compare them with the streams that the provisioner made.
const SIZES: [&str; 4] = ["--max-log-bytes", "512MiB", "--max-queue-bytes", "256MiB"];

fn run(command: &mut Command) {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&done.stderr));
}

/// Makes a CA and a server certificate for 127.0.0.1, with openssl.
fn certificates(dir: &Path) {
    let openssl = |arguments: &str| {
        run(Command::new("openssl").args(arguments.split_whitespace()).current_dir(dir));
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(&format!(
        "req -x509 {key} -keyout ca.key -out ca.pem -days 2 -subj /CN=ca -addext basicConstraints=critical,CA:TRUE"
    ));
    std::fs::write(dir.join("extensions"), "subjectAltName=IP:127.0.0.1\n").unwrap();
    openssl(&format!("req {key} -keyout server.key -out server.csr -subj /CN=server"));
    openssl(
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile extensions -out server.pem",
    );
}

/// Measures each guard in turn, `rounds` times, so that other load of the machine spreads over all.
pub(crate) async fn show(options: &Options, guards: &[Guard], rounds: usize) {
    rustls::crypto::ring::default_provider().install_default().ok();
    let mut figures = vec![[0.0; 3]; guards.len()];
    for round in 1..=rounds {
        for (guard, figure) in guards.iter().copied().zip(&mut figures) {
            let access = Access::start(guard);
            let trellis = Trellis::start(&access, options).await;
            trellis.many(options.jobs.div_ceil(10), IN_FLIGHT).await;
            let before = cpu(&trellis);
            let many = trellis.many(options.jobs, IN_FLIGHT).await.as_secs_f64();
            let by_process: Vec<(String, f64)> = cpu(&trellis)
                .into_iter()
                .zip(before)
                .map(|((name, after), (_, before))| (name, (after - before) * 1e6 / options.jobs as f64))
                .collect();
            let used: f64 = by_process.iter().map(|(_, used)| used).sum();
            let each: Vec<String> =
                by_process.iter().map(|(name, used)| format!("{name} {used:.0}")).collect();
            let one = trellis.one_at_a_time(options.singles).await.percentile(50).as_secs_f64();
            println!(
                "round {round}, {}: {:.0} jobs a second, {used:.0} µs of CPU a job ({}), one in {:.2} ms",
                guard.name(),
                options.jobs as f64 / many,
                each.join(", "),
                one * 1e3
            );
            for (sum, measured) in figure.iter_mut().zip([many, used, one]) {
                *sum += measured;
            }
            trellis.stop().await;
        }
    }
    println!("\ntimes that of plain:   many jobs   CPU a job   one at a time, p50");
    let plain = figures[0];
    for (guard, figure) in guards.iter().zip(figures) {
        let [many, used, one] = [0, 1, 2].map(|of| figure[of] / plain[of]);
        println!("{:<22} {many:>9.2}   {used:>9.2}   {one:>18.2}", guard.name());
    }
}

/// The processor time of each kind of process so far, in seconds.
fn cpu(trellis: &Trellis) -> Vec<(String, f64)> {
    trellis.spent().into_iter().map(|spent| (spent.name, spent.cpu.as_secs_f64())).collect()
}
