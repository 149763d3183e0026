"""Generated documents, and the number of documents with a word as the engine counts it, one request a word."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sira_es.cluster.connect import Cluster, segment
from sira_es.vocabulary.model import Statistics, Word

BEGINNINGS = ["ba", "ke", "ti", "lo", "mu", "sha", "pre", "con", "de", "vol"]
STEMS = [a + b for a in BEGINNINGS for b in ["nt", "rk", "st", "mp", "ld", "ner", "tor", "cel", "vin", "gat"]]
ENDINGS = ["", "", "s", "ing", "ed"]
LITTLE = ["the", "of", "a", "in", "to", "and"]
HAN = "日本語勉強東京大学電車時間会社天気先生学生図書館"


def sentence(draw: random.Random, length: int) -> str:
    """Words with the skew of a language: few frequent, many rare; with inflections, stop words and compounds."""
    words = []
    for _ in range(length):
        stem = STEMS[min(int(draw.expovariate(1 / 18)), len(STEMS) - 1)]
        kind = draw.random()
        if kind < 0.2:
            words.append(draw.choice(LITTLE))
        elif kind < 0.25:
            words.append(f"{stem}-{draw.choice(STEMS)}")
        elif kind < 0.3:
            words.append("".join(draw.choices(HAN, k=draw.randint(1, 4))))
        else:
            words.append((stem + draw.choice(ENDINGS)).title() if kind > 0.9 else stem + draw.choice(ENDINGS))
    return " ".join(words)


def documents(number: int, fields: Sequence[str] = ("title", "text"), seed: int = 1) -> list[dict[str, str]]:
    draw = random.Random(seed)
    return [{f: sentence(draw, 4 if f == "title" else 15) for f in fields} for _ in range(number)]


def questions(number: int, seed: int = 2) -> list[str]:
    """Words and phrases to look up; every tenth one that no document has."""
    draw = random.Random(seed)
    return [sentence(draw, draw.randint(1, 3)) if i % 10 else f"zz{i} unheard{i}" for i in range(number)]


async def create(
    cluster: Cluster,
    index: str,
    *,
    properties: Mapping[str, Any],
    shards: int = 1,
    settings: Mapping[str, Any] | None = None,
    mappings: Mapping[str, Any] | None = None,
) -> None:
    body = {
        "settings": {"number_of_shards": shards, "number_of_replicas": 0, "refresh_interval": -1, **(settings or {})},
        "mappings": {"properties": properties, **(mappings or {})},
    }
    await cluster.request("PUT", f"/{segment(index)}", body=body)


async def add(cluster: Cluster, index: str, sources: Iterable[Mapping[str, Any]], **action: Any) -> None:
    """Index documents with the ids 0, 1, ... and make them searchable."""
    lines: list[Any] = []
    for i, source in enumerate(sources):
        lines += [{"index": {"_id": str(i), **action}}, source]
    answer = await cluster.request("POST", f"/{segment(index)}/_bulk", params={"refresh": True}, lines=lines)
    assert not answer["errors"], answer


async def count(cluster: Cluster, target: str, query: Mapping[str, Any]) -> int:
    answer = await cluster.request("POST", f"/{segment(target)}/_count", body={"query": query})
    assert answer["_shards"]["failed"] == 0
    return int(answer["count"])


async def counted(cluster: Cluster, target: str, words: Sequence[Word], fields: Sequence[str]) -> dict[str, int]:
    """The documents with each word in any of the fields, by its surface text."""
    gate = asyncio.Semaphore(8)

    async def one(word: Word) -> tuple[str, int]:
        kind = {"type": "phrase"} if len(word.tokens) > 1 else {"operator": "and"}
        clauses: list[Any] = [
            {"match_phrase": {f: word.text}} if "type" in kind else {"match": {f: {"query": word.text, **kind}}}
            for f in fields
        ]
        if word.parts:
            clauses = [{"bool": {"must": [{"match": {f: part}} for part in word.parts]}} for f in fields]
        async with gate:
            return word.text, await count(cluster, target, {"bool": {"should": clauses, "minimum_should_match": 1}})

    return dict(await asyncio.gather(*(one(w) for w in words)))


def words_of(statistics: Statistics) -> list[Word]:
    """Each word once."""
    return list({(w.text, w.tokens): w for a in statistics.analyses for w in a.words}.values())
