"""An upstream that answers searches at once, and asks a real node for everything else."""

from __future__ import annotations

import asyncio
import sys
import urllib.error
import urllib.request
from typing import Any

HITS = b",".join(
    b'{"_index":"docs","_id":"%d","_score":%d.5,"_source":{"title":"a title of some words"}}' % (i, 20 - i)
    for i in range(10)
)
BODY = (
    b'{"took":1,"timed_out":false,"_shards":{"total":1,"successful":1,"skipped":0,"failed":0},'
    b'"hits":{"total":{"value":10,"relation":"eq"},"max_score":20.5,"hits":[' + HITS + b"]}}"
)
ANSWER = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json; charset=UTF-8\r\ncontent-length: %d\r\n\r\n" % len(BODY) + BODY
)


class Instant(asyncio.Protocol):
    node = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.read = b""

    def data_received(self, data: bytes) -> None:
        self.read += data
        head, found, rest = self.read.partition(b"\r\n\r\n")
        if not found:
            return
        lower = head.lower()
        at = lower.find(b"content-length:")
        length = int(lower[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        if len(rest) < length:
            return
        self.read = rest[length:]
        method, target = head.split(b" ", 2)[:2]
        if target.endswith(b"/_search"):
            self.transport.write(ANSWER)
        else:
            loop = asyncio.get_running_loop()
            work = loop.run_in_executor(None, self.ask, method.decode(), target.decode(), rest[:length])
            work.add_done_callback(lambda done: self.transport.write(done.result()))

    def ask(self, method: str, target: str, body: bytes) -> bytes:
        kind = "application/x-ndjson" if "_msearch" in target else "application/json"
        request = urllib.request.Request(
            self.node + target, data=body or None, method=method, headers={"Content-Type": kind}
        )
        try:
            with urllib.request.urlopen(request) as answer:
                status, content = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            status, content = error.code, error.read()
        head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
        return head.encode() + content


async def main() -> None:
    Instant.node = sys.argv[1]
    server = await asyncio.get_running_loop().create_server(Instant, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    import uvloop

    uvloop.run(main())
