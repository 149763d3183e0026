"""What the proxy adds to a search, and how many it rewrites in a second.

    python -m benchmarks.proxy.run [--node http://127.0.0.1:9219]

Starts an upstream that answers at once and a proxy with one process before it, each a process of its own, and sends the
same search over 1 and over 16 connections. The index is made on the node and removed afterwards.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

TEXT = "laptop gets hot and the fan is loud"
ANSWER = {
    "terms": [["overheating", 0.8], ["thermal", 0.6], ["cooling", 0.6], ["dust", 0.5], ["heat", 0.5], ["noise", 0.4]]
}
SEARCH = {
    "query": {"bool": {"must": [{"multi_match": {"query": TEXT, "fields": ["title^3", "text"]}}]}},
    "size": 10,
    "aggs": {"brands": {"terms": {"field": "brand"}}},
}
INDEX = "bench-proxy"


class Client(asyncio.Protocol):
    """Sends one request after the other over a connection of its own."""

    def __init__(self, request: bytes, count: int, took: list[float]) -> None:
        self.request, self.left, self.took = request, count, took
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.read = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.send()

    def send(self) -> None:
        if not self.left:
            self.transport.close()
            self.done.set_result(None)
            return
        self.left -= 1
        self.started = time.perf_counter()
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        self.read += data
        head, found, rest = self.read.partition(b"\r\n\r\n")
        if not found:
            return
        if not head.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"unexpected answer: {head.decode()}")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        if len(rest) >= length:
            self.took.append(time.perf_counter() - self.started)
            self.read = rest[length:]
            self.send()


async def measure(port: int, path: str, connections: int, count: int) -> tuple[float, float, float]:
    """Requests a second, and the median and 99th percentile of their time in milliseconds."""
    body = json.dumps(SEARCH).encode()
    request = (
        f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        f"accept: application/json\r\nuser-agent: benchmark\r\ncontent-length: {len(body)}\r\n\r\n"
    ).encode() + body
    took: list[float] = []
    loop, started = asyncio.get_running_loop(), time.perf_counter()
    clients = [
        (await loop.create_connection(lambda: Client(request, count // connections, took), "127.0.0.1", port))[1]
        for _ in range(connections)
    ]
    await asyncio.gather(*(client.done for client in clients))
    seconds = time.perf_counter() - started
    took.sort()
    return len(took) / seconds, 1000 * took[len(took) // 2], 1000 * took[int(len(took) * 0.99)]


def cpu_seconds(process: subprocess.Popen[bytes]) -> float:
    parts = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(parts[11]) + int(parts[12])) / 100


def ask(node: str, method: str, path: str, body: object = None) -> None:
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(
        node + path, data=data, method=method, headers={"Content-Type": "application/json"}
    )
    urllib.request.urlopen(request).close()


def make_index(node: str) -> None:
    text = {"type": "text", "analyzer": "english"}
    properties = {"title": text, "text": text, "brand": {"type": "keyword"}}
    ask(node, "PUT", f"/{INDEX}", {"settings": {"number_of_replicas": 0}, "mappings": {"properties": properties}})
    for i, (word, _) in enumerate(ANSWER["terms"]):
        source = {"title": f"{word} of a laptop", "text": "a fan that is loud", "brand": "x"}
        ask(node, "PUT", f"/{INDEX}/_doc/{i}?refresh=true", source)


def start(arguments: list[str], stream: str) -> tuple[subprocess.Popen[bytes], str]:
    """A process, and the first line that it prints."""
    process = subprocess.Popen(arguments, **{stream: subprocess.PIPE})  # type: ignore[call-overload]
    line = getattr(process, stream).readline().decode().strip()
    return process, line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--node", default="http://127.0.0.1:9219")
    parser.add_argument("--requests", type=int, default=20_000)
    given = parser.parse_args()
    make_index(given.node)
    processes = []
    try:
        with tempfile.TemporaryDirectory() as folder:
            upstream, port = start([sys.executable, "-m", "benchmarks.proxy.instant", given.node], "stdout")
            processes.append(upstream)
            config, recorded = Path(folder, "sira-es.yml"), Path(folder, "answers.jsonl")
            config.write_text(
                f"cluster: {{url: http://127.0.0.1:{port}}}\nstate: {folder}\n"
                f"indices: {{{INDEX}: {{text_fields: [title, text]}}}}\n"
            )
            recorded.write_text(json.dumps({"id": TEXT, "answer": json.dumps(ANSWER)}) + "\n")
            command = [sys.executable, "-m", "sira_es", "proxy", "-c", str(config), "--recorded", str(recorded)]
            proxy, line = start([*command, "--listen", "127.0.0.1:0"], "stderr")
            processes.append(proxy)
            proxy_port = int(line.split(" in front")[0].rpartition(":")[2])
            drain(proxy)
            report(int(port), proxy_port, proxy, given.requests)
    finally:
        for process in processes:
            process.terminate()
            process.wait()
        ask(given.node, "DELETE", f"/{INDEX}")


def drain(proxy: subprocess.Popen[bytes]) -> None:
    """Read the access log away, as a log collector does."""
    import threading

    def read() -> None:
        while proxy.stderr is not None and proxy.stderr.read(65536):
            pass

    threading.Thread(target=read, daemon=True).start()


def report(upstream: int, proxy: int, process: subprocess.Popen[bytes], count: int) -> None:
    ways = (
        ("direct", upstream, f"/{INDEX}/_search"),
        ("passed through", proxy, f"/{INDEX}/_doc/_search"),
        ("rewritten from the store", proxy, f"/{INDEX}/_search"),
    )
    print("| | 1 connection: p50, p99 ms | adds, p50 ms | 16 connections: req/s | CPU of the proxy, µs a request |")
    print("|---|---|---|---|---|")
    base = 0.0
    for name, port, path in ways:
        asyncio.run(measure(port, path, 1, 200))
        _, p50, p99 = asyncio.run(measure(port, path, 1, count // 10))
        base = base or p50
        before = cpu_seconds(process)
        rate, _, _ = asyncio.run(measure(port, path, 16, count))
        cpu = 1e6 * (cpu_seconds(process) - before) / count
        added, used = ("", "") if port == upstream else (f"{p50 - base:.2f}", f"{cpu:.0f}")
        print(f"| {name} | {p50:.2f}, {p99:.2f} | {added} | {rate:,.0f} | {used} |", flush=True)


if __name__ == "__main__":
    main()
