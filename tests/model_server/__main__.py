"""A model server in a process of its own; prints its api_base, and ends with its standard input or on SIGTERM."""

import argparse
import gzip
import signal
import sys
from pathlib import Path

import orjson

from tests.model_server.server import ModelServer, join_answers


def rows(path: Path) -> list[dict[str, str]]:
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [orjson.loads(line) for line in raw.splitlines() if line.strip()]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.model_server", description=__doc__)
    parser.add_argument(
        "--answers", type=Path, action="append", default=[], help='JSON lines {"id", "answer"}; may be repeated'
    )
    parser.add_argument(
        "--corpus", type=Path, action="append", default=[], help="documents or queries with these ids; may be repeated"
    )
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each answer")
    options = parser.parse_args()
    answers = [row for path in options.answers for row in rows(path)]
    texts = [row for path in options.corpus for row in rows(path)]
    with ModelServer(join_answers(answers, texts), port=options.port, latency=options.latency) as server:
        print(server.api_base, flush=True)  # noqa: T201
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        sys.stdin.read()


if __name__ == "__main__":
    main()
