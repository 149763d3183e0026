"""docs/evidence.md from the measured figures: tables, what others published, and what the figures do not show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .data import COLLECTIONS, Collection

__all__ = ["render"]

FIRST = "nDCG@10"
REFERENCE = "OpenSearch 2.19.6"
Figures = Mapping[str, Any]

ROWS = (
    ("best_fields", "BM25, `multi_match` best_fields"),
    ("cross_fields", "BM25, `multi_match` cross_fields"),
    ("tuned", "BM25, k1 and b tuned on these very queries"),
    ("documents", "words of documents only"),
    ("queries", "words for queries only"),
    ("expanded", "**both: the default**"),
    ("rerank", "mode rerank"),
    ("rescore", "mode rescore"),
    ("exact-counts", "exact counts instead of term vectors"),
    ("no-df-filter", "no document frequency filter"),
    ("fixed-weight", "fixed weight instead of the budget"),
    ("uniform-confidence", "all proposals equally sure"),
    ("words-only", "only proposals of one word"),
    ("no-lift", "the query's own words not lifted"),
    ("wrong-answers", "another query's answer"),
    ("wrong-answers-fixed-weight", "another query's answer at a fixed weight"),
)

HEAD = """# Evidence

Written by `make evidence`, which measures everything on this page on a real node. One fixed configuration, the default
(`budget` 1.2, `knee` 5, `lift` 0.5, `max_terms` 16, `min_margin` 0, `max_df` 0.5, mode recall), for all collections and
engines; `english` analyzer over `title` and `text`, weight 1 each; recorded answers of one large language model.

Figures are those of trec_eval, through ir-measures. *Baseline* is the stronger of the two plain BM25 queries of a
collection. p: paired t-test, two-sided. *Worse*, *better*: share of queries that lose or gain more than 0.1 nDCG@10.
"""

CAVEATS = """## What these figures do not show

- The collections are public: the model may know them, scifact most of all. Your own judgments decide, not this page:
  `sira-es eval`.
- Answers were given in batches, documents without queries and queries without documents; paraphrases of one question
  (stackfaq) got nearly the same answer.
- scifact and chorus-ecommerce have no answers for documents: there the default is words for queries only.
- One- and two-word queries are those of one collection (chorus-ecommerce), where the gain is not significant, and fewer of
  the products that the default finds were ever judged than of those that BM25 finds: see *without unjudged documents*.
- Nothing above 20,000 documents was measured, so nothing is said of quality or latency on large indices.
- Scores that are equal are ranked by the order in which documents were indexed. Here that is the order of the file; in
  another order figures move in the third decimal (most on chorus-ecommerce, whose titles are short and alike).
- k1 and b of the tuned row were chosen on the queries that they are measured on: more than a tuned BM25 can have.
- Latency is that of one client on a small machine that does other things as well; only the ratios mean anything.
"""


def render(results: Sequence[Figures]) -> str:
    """The page. The figures of `REFERENCE` are told in full, those of other engines beside them."""
    main = next((r for r in results if r["engine"] == REFERENCE), None)
    if main is None:
        return HEAD + "\nNothing was measured yet.\n\n" + CAVEATS
    found = {c: main["collections"][c.name] for c in COLLECTIONS if c.name in main["collections"]}
    parts = [
        HEAD,
        f"## The default against BM25\n\n{main['engine']}, indices merged to one segment.\n\n{_default(found)}",
        f"## Row by row\n\nnDCG@10, and the gain over the baseline.\n\n{_rows(found)}\n\n{_tuned(found)}",
        f"## Without unjudged documents\n\n{_condensed(found)}",
        f"## Half of the documents enriched\n\n{_half(found)}",
        f"## Three shards\n\n{_shards(found)}",
        f"## Other engines\n\n{_engines(results)}",
        f"## Cost\n\n{_cost(found)}",
        f"## What others measured\n\n{_published(found)}",
        CAVEATS,
        _sources(found),
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]], *, align: str = "---:") -> str:
    lines = [list(head), *(list(row) for row in rows)]
    lines.insert(1, ["---", *(align for _ in lines[0][1:])])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _default(found: Mapping[Collection, Figures]) -> str:
    rows = []
    for c, f in found.items():
        compared = f["compare"]["expanded"]
        first, recall = compared[FIRST], compared["R@10"]
        before, after = f["runs"][f["baseline"]], f["runs"]["expanded"]
        rows.append(
            [
                f"{c.name} ({f['queries']}), {_sides(f)}",
                f"{_three(before[FIRST])} → {_three(after[FIRST])}",
                f"**{_percent(first['relative'])}**",
                f"{first['ci'][0]:+.3f} to {first['ci'][1]:+.3f}",
                f"{first['p']:.0e}" if first["p"] < 0.001 else f"{first['p']:.2g}",
                f"{_share(first['worse_by_0.1'])} / {_share(first['better_by_0.1'])}",
                f"{_three(before['R@10'])} → {_three(after['R@10'])} ({_percent(recall['relative'])})",
            ]
        )
    firsts = [f["compare"]["expanded"][FIRST] for f in found.values()]
    recalls = [f["compare"]["expanded"]["R@10"]["relative"] for f in found.values()]
    worse = f"{_share(_mean(c['worse_by_0.1'] for c in firsts))} / {_share(_mean(c['better_by_0.1'] for c in firsts))}"
    gain = f"**{_percent(_mean(c['relative'] for c in firsts))}**"
    rows.append(["mean", "", gain, "", "", worse, _percent(_mean(recalls))])
    head = ("collection (queries), sides", FIRST, "gain", "95 % interval", "p", "worse / better", "R@10")
    return _table(head, rows)


def _rows(found: Mapping[Collection, Figures]) -> str:
    rows = []
    for name, label in ROWS:
        cells, gains = [], []
        for f in found.values():
            value, gain = _value(f, name)
            cells.append("-" if value is None else f"{_three(value)} {'' if gain is None else _percent(gain)}".strip())
            gains.append(gain if value is not None and gain is not None else 0.0 if value is not None else None)
        whole = [g for g in gains if g is not None]
        rows.append([label, *cells, _percent(_mean(whole)) if len(whole) == len(found) else "-"])
    return _table(("run", *(c.name for c in found), "mean gain"), rows)


def _value(figures: Figures, name: str) -> tuple[float | None, float | None]:
    """nDCG@10 of a row and its gain over the baseline (None for the baseline itself)."""
    base = figures["runs"][figures["baseline"]][FIRST]
    if name == "tuned":
        value = figures["tuned"]["runs"]["baseline"][FIRST]
    elif name in figures["runs"]:
        value = figures["runs"][name][FIRST]
    elif name == "queries":
        value = figures["runs"]["expanded"][FIRST]
    else:
        return None, None
    return value, None if name == figures["baseline"] else value / base - 1


def _tuned(found: Mapping[Collection, Figures]) -> str:
    told = []
    for c, f in found.items():
        tuned = f["tuned"]
        gain = tuned["compare"]["expanded"][FIRST]["relative"]
        told.append(f"{c.name} k1 {tuned['k1']:g}, b {tuned['b']:g}: {_percent(gain)}")
    return f"The default beside a BM25 tuned so, with the same k1 and b: {'; '.join(told)}."


def _condensed(found: Mapping[Collection, Figures]) -> str:
    rows = []
    for c, f in found.items():
        unjudged = [f"{100 * (1 - f['runs'][run]['Judged@10']):.0f} %" for run in (f["baseline"], "expanded")]
        compared = f["condensed"]
        gain = "only relevant documents are judged: means nothing"
        if compared:
            first = compared["expanded"][FIRST]
            gain = f"{_percent(first['relative'])}, p {first['p']:.2g}"
        rows.append([c.name, *unjudged, gain])
    return _table(("collection", "unjudged at 10, baseline", "unjudged at 10, default", "gain without them"), rows)


def _half(found: Mapping[Collection, Figures]) -> str:
    rows = []
    for c, f in found.items():
        if f["half"]:
            first = f["half"]["compare"]["expanded"][FIRST]
            before, after = f["half"]["R@10 of documents that are not enriched"]
            left = f"{_three(before)} → {_three(after)} ({_percent(after / before - 1)})"
            rows.append([c.name, _percent(first["relative"]), _share(first["worse_by_0.1"]), left])
    text = "A random half, while enrichment is under way: what is not enriched yet must not suffer from what is.\n\n"
    return text + _table(("collection", "gain", "worse", "R@10 of relevant documents that are not enriched"), rows)


def _shards(found: Mapping[Collection, Figures]) -> str:
    rows = []
    for c, f in found.items():
        runs, first = f["shards"]["runs"], f["shards"]["compare"]["expanded"][FIRST]
        before = max(runs["best_fields"][FIRST], runs["cross_fields"][FIRST])
        change = f"{_three(before)} → {_three(runs['expanded'][FIRST])}"
        rows.append([c.name, change, _percent(first["relative"]), _share(first["worse_by_0.1"])])
    gains = [f["shards"]["compare"]["expanded"][FIRST]["relative"] for f in found.values()]
    rows.append(["mean", "", _percent(_mean(gains)), ""])
    return _table(("collection", FIRST, "gain", "worse"), rows)


def _engines(results: Sequence[Figures]) -> str:
    rows = []
    for result in sorted(results, key=lambda r: (r["engine"] != REFERENCE, r["engine"])):
        collections = result["collections"]
        cells, gains = [], []
        for c in COLLECTIONS:
            f = collections.get(c.name)
            if f is None:
                cells.append("-")
                continue
            gains.append(f["compare"]["expanded"][FIRST]["relative"])
            change = f"{_three(f['runs'][f['baseline']][FIRST])} → {_three(f['runs']['expanded'][FIRST])}"
            cells.append(f"{change} {_percent(gains[-1])}")
        rows.append([result["engine"], *cells, _percent(_mean(gains))])
    return _table(("engine", *(c.name for c in COLLECTIONS), "mean gain"), rows)


def _cost(found: Mapping[Collection, Figures]) -> str:
    rows = []
    for c, f in found.items():
        growth = f["growth"]
        grown = "-" if growth is None else _percent(growth["full"] / growth["plain"] - 1)
        base = f["latency"]["baseline"]
        ratios = [
            f"{f['latency'][mode]['p50'] / base['p50']:.2f} / {f['latency'][mode]['p95'] / base['p95']:.2f}"
            for mode in ("expanded", "rerank", "rescore")
        ]
        rows.append([c.name, f"{f['documents']:,}", grown, *ratios])
    head = ("collection", "documents", "index growth", "recall", "rerank", "rescore")
    text = (
        "Growth: bytes on disk, merged, of title and text with both of our fields. The other columns: time of a search"
        " (10 hits, expansion at hand) as a multiple of the plain query's, p50 / p95.\n\n"
    )
    return text + _table(head, rows)


def _published(found: Mapping[Collection, Figures]) -> str:
    rows = []
    for c, f in found.items():
        ours = " / ".join(_three(f["runs"][name][FIRST]) for name in ("best_fields", "cross_fields"))
        others = "; ".join(f"{figure} ({source})" for source, figure in c.published)
        sides, before, after, gain = c.reference
        rows.append([c.name, ours, others, f"{before} → {after}, {gain} ({sides})"])
    text = (
        "bm25s: Lucene's formula, English stop words, Snowball stemmer, title and text as one; k1 .9 b .4 / k1 1.5 b .75."
        " The last column is the prototype of this method, on OpenSearch 3.8.0 with the same answers and configuration:"
        " the figures that this implementation has to reproduce. It counted document frequencies exactly, which is the"
        " row *exact counts* above: over several fields, term vectors tell the largest df of one field. Method: Yang,"
        " Ma, Chen, Shrivastava, *Superintelligent Retrieval Agent*, arXiv 2605.06647.\n\n"
    )
    head = ("collection", "BM25 here (best / cross_fields)", "BM25 elsewhere, nDCG@10", "prototype")
    return text + _table(head, rows, align="---")


def _sources(found: Mapping[Collection, Figures]) -> str:
    rows = [[c.name, c.what, c.source, c.licence] for c in found]
    return "## Collections\n\n" + _table(("collection", "what", "source", "licence"), rows, align="---")


def _sides(figures: Figures) -> str:
    return "both" if figures["enriched_documents"] else "queries only"


def _three(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")


def _percent(share: float) -> str:
    return f"{100 * share:+.1f} %"


def _share(share: float) -> str:
    return f"{100 * share:.1f} %"


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)
