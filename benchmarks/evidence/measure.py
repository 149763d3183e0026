"""One collection on one node: every row of the tables."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sira_es.dsl.compile import fill
from sira_es.evaluate import Evaluation, Search, assess
from sira_es.evaluate.bench import Bench
from sira_es.evaluate.compare import compare
from sira_es.evaluate.measures import per_query
from sira_es.evaluate.run import search_all
from sira_es.evaluate.variants import ABLATIONS, BASELINE, EXPANDED, Variant
from sira_es.settings import ClusterSettings, IndexSettings, Settings
from sira_es.sira import AsyncSira

from .data import Loaded
from .indices import bytes_of, delete, enriched, half_of, load_in_order, set_similarity

__all__ = ["MEASURES", "measure"]

MEASURES = ("nDCG@10", "R@10", "RR", "Judged@10")
FIRST = MEASURES[0]
GRID = [(k1, b) for k1 in (0.6, 0.9, 1.2, 1.6, 2.0) for b in (0.3, 0.5, 0.75, 0.9)]
ROUNDS = 3
_DEPTH = 10
_CONDENSED_DEPTH = 100  # unjudged documents are taken out of rankings: ten must be left

BEST_FIELDS: Mapping[str, Any] = {
    "query": {"multi_match": {"query": "{{query}}", "fields": ["title", "text"], "type": "best_fields"}}
}
CROSS_FIELDS: Mapping[str, Any] = {
    "query": {"multi_match": {"query": "{{query}}", "fields": ["title", "text"], "type": "cross_fields"}}
}
MODES = tuple(replace(EXPANDED, name=mode, mode=mode) for mode in ("rerank", "rescore"))
FIXED = next(v for v in ABLATIONS if v.name == "fixed-weight")


async def measure(url: str, loaded: Loaded, say: Callable[[str], None]) -> dict[str, Any]:
    """Measure one collection on the node at `url`; its indices are made for it and deleted afterwards."""
    name = loaded.collection.name
    indices = {kind: f"sira-es-evidence-{name}-{kind}" for kind in ("plain", "full", "half", "shards")}
    with tempfile.TemporaryDirectory() as state:
        settings = _settings(url, loaded, indices.values(), Path(state))
        async with AsyncSira(
            settings, query_answers=loaded.query_answers, document_answers=loaded.document_answers
        ) as sira:
            try:
                return await _Work(sira, loaded, indices, say).all()
            finally:
                for index in indices.values():
                    await delete(await sira.cluster(), index)


def _settings(url: str, loaded: Loaded, indices: Any, state: Path) -> Settings:
    one = IndexSettings(text_fields=["title", "text"], language="en", description=loaded.collection.description)
    return Settings(cluster=ClusterSettings(url=[url], timeout=120.0), state=state, indices=dict.fromkeys(indices, one))


class _Work:
    """The steps for one collection, each of which returns its part of the result."""

    def __init__(self, sira: AsyncSira, loaded: Loaded, indices: Mapping[str, str], say: Callable[[str], None]) -> None:
        self.sira = sira
        self.loaded = loaded
        self.indices = indices
        self._say = say
        judged = (grade for of_query in loaded.judgments.grades.values() for grade in of_query.values())
        self.depth = _CONDENSED_DEPTH if 0 in judged else _DEPTH
        self.documents = [(key, _text_of(source)) for key, source in loaded.documents]

    def say(self, text: str) -> None:
        self._say(f"{self.loaded.collection.name}: {text}")

    async def all(self) -> dict[str, Any]:
        made = await self._enriched()
        await load_in_order(self.sira, self.indices["full"], made)
        bench = self._bench("full")
        more = {**self._wrong(bench), "exact-counts": self._bench("full", exact=True).search(EXPANDED)}
        runs = await self._rankings(bench, [*_variants(self.loaded), *MODES], more)
        main, baseline = self._assessed(runs)
        result = {
            "documents": len(self.documents),
            "queries": len(self.loaded.queries.texts),
            "enriched_documents": self.loaded.document_answers is not None,
            "baseline": baseline,
            "runs": main.figures,
            "compare": _compared(main),
            "condensed": _compared(main.condensed) if main.condensed else None,
        }
        self.say(_line(main))
        result["half"] = await self._half(made)
        result["shards"] = await self._shards(made)
        result["latency"] = await self._latency(bench)
        result["growth"] = await self._growth()
        result["tuned"] = await self._tuned()
        return result

    async def _enriched(self) -> list[tuple[str, dict[str, Any]]]:
        if self.loaded.document_answers is None:
            return self.documents
        await load_in_order(self.sira, self.indices["plain"], self.documents)
        made = await enriched(self.sira, self.indices["plain"], self.documents)
        self.say(f"{sum('sira' in source for _, source in made)} of {len(made)} documents enriched")
        return made

    def _bench(self, kind: str, template: Mapping[str, Any] | None = None, *, exact: bool = False) -> Bench:
        return Bench(self.sira, self.indices[kind], size=self.depth, template=template, exact=exact)

    async def _rankings(
        self, bench: Bench, variants: Sequence[Variant], more: Mapping[str, Search] | None = None
    ) -> dict[str, dict[str, Sequence[str]]]:
        searches = {v.name: bench.search(v) for v in variants}
        searches["best_fields"] = _template(bench, BEST_FIELDS)
        searches["cross_fields"] = _template(bench, CROSS_FIELDS)
        return (await search_all(self.loaded.queries.texts, {**searches, **(more or {})}, self.depth))[0]

    def _assessed(self, runs: Mapping[str, Any]) -> tuple[Evaluation, str]:
        """The runs beside the stronger of the two plain queries."""
        grades, texts = self.loaded.judgments.grades, self.loaded.queries.texts
        plain = {name: _mean(per_query(runs[name], grades, [FIRST])[FIRST]) for name in ("cross_fields", "best_fields")}
        baseline = max(plain, key=lambda name: plain[name])
        return assess(texts, grades, runs, baseline=baseline, measures=MEASURES), baseline

    def _wrong(self, bench: Bench) -> dict[str, Search]:
        """Every query with the answer to the query half the file away."""
        ids = list(self.loaded.queries.texts)
        other = dict(zip(ids, ids[len(ids) // 2 :] + ids[: len(ids) // 2], strict=True))

        def searching(variant: Variant) -> Search:
            search = bench.search(variant)
            return lambda query, text: search(other[query], text)

        return {"wrong-answers": searching(EXPANDED), "wrong-answers-fixed-weight": searching(FIXED)}

    async def _half(self, made: Sequence[tuple[str, dict[str, Any]]]) -> dict[str, Any] | None:
        """With a random half of the documents enriched; and what became of the relevant documents of the other half."""
        if self.loaded.document_answers is None:
            return None
        chosen = half_of(made)
        plain = dict(self.documents)
        mixed = [(key, source if key in chosen else plain[key]) for key, source in made]
        await load_in_order(self.sira, self.indices["half"], mixed)
        runs = await self._rankings(self._bench("half"), [EXPANDED])
        found, baseline = self._assessed(runs)
        grades = {
            query: {doc: grade for doc, grade in judged.items() if doc not in chosen}
            for query, judged in self.loaded.judgments.grades.items()
        }
        values = {name: per_query(runs[name], grades, ["R@10"])["R@10"] for name in (baseline, EXPANDED.name)}
        left = {name: _mean(of_run) for name, of_run in values.items()}
        return {
            "runs": found.figures,
            "compare": _compared(found),
            "R@10 of documents that are not enriched": [left[baseline], left[EXPANDED.name]],
        }

    async def _shards(self, made: Sequence[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
        await load_in_order(self.sira, self.indices["shards"], made, shards=3)
        found, _ = self._assessed(await self._rankings(self._bench("shards"), [EXPANDED]))
        return {"runs": found.figures, "compare": _compared(found)}

    async def _tuned(self) -> dict[str, Any]:
        """Plain BM25 with the k1 and b that are best on these very queries, and the method beside it."""
        cluster = await self.sira.cluster()
        index, grades, texts = self.indices["full"], self.loaded.judgments.grades, self.loaded.queries.texts
        best: tuple[float, str, float, float] = (-1.0, "", 0.0, 0.0)
        for k1, b in GRID:
            await set_similarity(cluster, index, k1, b)
            for name, template in (("cross_fields", CROSS_FIELDS), ("best_fields", BEST_FIELDS)):
                run = await _searched_at_once(self.sira, index, texts, template)
                best = max(best, (_mean(per_query(run, grades, [FIRST])[FIRST]), name, k1, b))
        _, name, k1, b = best
        await set_similarity(cluster, index, k1, b)
        template = CROSS_FIELDS if name == "cross_fields" else BEST_FIELDS
        bench = self._bench("full", template)
        runs, _ = await search_all(texts, {v.name: bench.search(v) for v in (BASELINE, EXPANDED)}, _DEPTH)
        found = assess(texts, grades, runs, baseline="baseline", measures=MEASURES)
        return {"type": name, "k1": k1, "b": b, "runs": found.figures, "compare": _compared(found)}

    async def _growth(self) -> dict[str, int] | None:
        if self.loaded.document_answers is None:
            return None
        cluster = await self.sira.cluster()
        return {kind: await bytes_of(cluster, self.indices[kind]) for kind in ("plain", "full")}

    async def _latency(self, bench: Bench) -> dict[str, dict[str, float]]:
        """Milliseconds of one search after another, size 10, expansions at hand; the runs take turns."""
        cluster = await self.sira.cluster()
        variants = (BASELINE, EXPANDED, *MODES)
        requests = {
            v.name: [
                {**await bench.request(v, query, text), "size": 10} for query, text in self.loaded.queries.texts.items()
            ]
            for v in variants
        }
        taken: dict[str, list[float]] = {v.name: [] for v in variants}
        for turn in range(ROUNDS + 1):
            for place in range(len(self.loaded.queries.texts)):
                for name, of_run in requests.items():
                    started = time.perf_counter()
                    await cluster.request("POST", f"/{bench.index}/_search", body=of_run[place])
                    if turn:
                        taken[name].append(1000 * (time.perf_counter() - started))
        quantiles = {name: statistics.quantiles(times, n=20) for name, times in taken.items()}
        return {name: {"p50": q[9], "p95": q[18]} for name, q in quantiles.items()}


def _variants(loaded: Loaded) -> list[Variant]:
    """The rows; where no document has an answer, documents change nothing and their row is left out."""
    sides = {"documents", "queries"}
    return [BASELINE, *(v for v in ABLATIONS if loaded.document_answers or v.name not in sides), EXPANDED]


def _text_of(source: Mapping[str, Any]) -> dict[str, Any]:
    return {"title": source.get("title") or "", "text": source.get("text") or ""}


def _template(bench: Bench, template: Mapping[str, Any]) -> Search:
    return lambda query, text: bench.rank(fill(template, text))


async def _searched_at_once(
    sira: AsyncSira, index: str, texts: Mapping[str, str], template: Mapping[str, Any]
) -> dict[str, list[str]]:
    lines: list[Mapping[str, Any]] = []
    for text in texts.values():
        lines += [{}, {**fill(template, text), "size": _DEPTH, "_source": False}]
    answer = await (await sira.cluster()).request("POST", f"/{index}/_msearch", lines=lines)
    return {
        query: [hit["_id"] for hit in response["hits"]["hits"]]
        for query, response in zip(texts, answer["responses"], strict=True)
    }


def _compared(found: Evaluation) -> dict[str, dict[str, Any]]:
    """Each run beside the baseline, with the share of queries that gain more than 0.1."""
    base = found.values[found.baseline]
    compared: dict[str, dict[str, Any]] = {}
    for run, of_run in found.values.items():
        if run == found.baseline:
            continue
        compared[run] = {}
        for name in (FIRST, "R@10"):
            better = sum(of_run[name][q] - value > 0.1 for q, value in base[name].items()) / len(base[name])
            comparison = compare(base[name], of_run[name]).to_json()
            compared[run][name] = {**comparison, "better_by_0.1": better}
    return compared


def _mean(values: Mapping[str, float]) -> float:
    return sum(values.values()) / len(values)


def _line(found: Evaluation) -> str:
    gain = found.comparisons[EXPANDED.name][FIRST]
    before, after = found.figures[found.baseline][FIRST], found.figures[EXPANDED.name][FIRST]
    return f"{FIRST} {before:.4f} -> {after:.4f} ({gain.relative or 0:+.1%}), {gain.worse_by_0_1:.1%} worse by > 0.1"
