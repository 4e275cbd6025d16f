//! Rotel, an independent collector: it receives OTLP over HTTP and gRPC, and forwards what it
//! decoded to the test's collector.

use std::ffi::OsString;

use super::{
    Collector,
    process::{Place, Process, Program, Settings, free_port},
};

static ROTEL: Program = Program {
    name: "rotel",
    place: Place::Variable("TRELLIS_ROTEL"),
    arguments,
    greeting: (b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n", &[b"HTTP/1.1"]),
};

#[derive(Debug)]
pub struct Rotel {
    process: Process,
    grpc: u16,
}

impl Rotel {
    pub fn start(collector: &Collector) -> Rotel {
        let grpc = free_port();
        Rotel { process: Process::start(&ROTEL, vec![grpc.to_string(), collector.url()]), grpc }
    }

    /// Starts a Rotel that drops what it receives.
    pub fn start_without_collector() -> Rotel {
        let grpc = free_port();
        Rotel { process: Process::start(&ROTEL, vec![grpc.to_string()]), grpc }
    }

    pub fn http_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.process.port())
    }

    pub fn grpc_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.grpc)
    }
}

fn arguments(settings: &Settings) -> Vec<OsString> {
    let grpc = &settings.extra[0];
    let file = |name: &str| settings.dir.join(name).into_os_string();
    let word = OsString::from;
    let mut all = vec![
        word("start"),
        word("--otlp-http-endpoint"),
        word(&format!("127.0.0.1:{}", settings.port)),
        word("--otlp-grpc-endpoint"),
        word(&format!("127.0.0.1:{grpc}")),
        word("--pid-file"),
        file("rotel.pid"),
        word("--log-file"),
        file("rotel.log"),
        word("--exporter"),
    ];
    match settings.extra.get(1) {
        Some(collector) => {
            let to = ["otlp", "--otlp-exporter-protocol", "http", "--otlp-exporter-endpoint", collector];
            all.extend(to.map(OsString::from));
        }
        None => all.push("blackhole".into()),
    }
    all
}
