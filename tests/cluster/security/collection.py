"""A collection small enough to reason about, with recorded answers, queries and judgments."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DOCUMENTS = {
    str(i): {"title": title, "text": text}
    for i, (title, text) in enumerate(
        [
            ("laptop overheats", "the fan of the notebook is blocked by dust"),
            ("printer offline", "restart the spooler of the printer queue"),
            ("vpn drops", "the tunnel ends after an hour; renew the certificate"),
            ("mail quota", "the mailbox is full and bounces messages"),
            ("monitor flickers", "the cable of the display is loose"),
            ("slow laptop", "the disk is full; remove old files"),
            ("password reset", "open the portal and confirm by phone"),
            ("meeting room", "book the projector with the room"),
        ]
    )
}
QUERY = "hot laptop"
ADDED = ["heat problem", "cooling"]


@dataclass(frozen=True)
class Files:
    documents: Path
    answers: Path
    query_answers: Path
    queries: Path
    qrels: Path


def write(folder: Path) -> Files:
    """The collection as the files that the commands read."""
    query_answer = {
        "concepts": [{"words": "hot", "need": 0.8, "same": [["dust", 0.6], ["fan", 0.6], ["absentword", 0.5]]}],
        "also": [["notebook", 0.5], ["cooling", 0.4]],
    }
    contents: dict[str, list[Any]] = {
        "documents.jsonl": [{"id": key, **source} for key, source in DOCUMENTS.items()],
        "answers.jsonl": [{"id": key, "answer": json.dumps({"terms": ADDED})} for key in DOCUMENTS],
        "query-answers.jsonl": [{"id": "q1", "text": QUERY, "answer": json.dumps(query_answer)}],
        "queries.jsonl": [{"id": "q1", "text": QUERY}],
    }
    for name, lines in contents.items():
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq1\t0\t1\n", "utf-8")
    documents, answers, query_answers, queries = (folder / name for name in contents)
    return Files(documents, answers, query_answers, queries, folder / "qrels.tsv")
