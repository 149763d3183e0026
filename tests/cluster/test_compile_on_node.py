"""Compiled requests on a real node: any text is searched for, nothing is lost, and the clause limit holds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from cluster.capabilities import counts_clauses_of_the_whole_tree
from cluster.documents import fill, make_index
from sira_es.cluster.connect import Cluster
from sira_es.cluster.statistics import DocumentFrequencies
from sira_es.cluster.target import describe
from sira_es.dsl.compile import Coverage, Mode, Shape, compile_search, leaves, original_query
from sira_es.errors import ClusterRefused
from sira_es.vocabulary import HumanTerms, Proposal, Rules, clean_query, expand
from sira_es.vocabulary.model import Expansion, Term, Verdict, Word

pytestmark = pytest.mark.anyio

MODES: tuple[Mode, ...] = ("recall", "rerank", "rescore")
FIELDS = (("title", 2.0), ("body", 1.0))
TEXT = {"type": "text", "analyzer": "english"}
MAPPINGS = {"properties": {"title": TEXT, "body": TEXT, "enriched_terms": TEXT}}
DOCUMENTS = {
    "fan": {"title": "Fan noise", "body": "The fan of the laptop is loud", "enriched_terms": ["overheating", "cooler"]},
    "heat": {"title": "Hot laptop", "body": "What to do where a laptop gets hot", "enriched_terms": ["temperature"]},
    "c": {"title": "C++ and AC/DC", "body": 'foo:bar NOT (1+1)=2 \\ " laptop', "enriched_terms": ["operators"]},
    "vpn": {"title": "VPN drops", "body": "The connection is lost every hour", "enriched_terms": ["tunnel"]},
    "rtl": {"title": "שלום עולם", "body": "مرحبا بالعالم 🙂 laptop", "enriched_terms": ["greeting"]},
}
HOSTILE = {
    "plus": "C++",
    "slash": "AC/DC",
    "brackets": "(1+1)=2",
    "operator": "NOT",
    "field": "foo:bar",
    "quote": '"',
    "backslash": "\\",
    "open": "(laptop AND [a TO",
    "emoji": "laptop 🙂 👩‍👩‍👧",
    "right to left": "שלום \u202elaptop مرحبا",
    "NUL": "lap\0top laptop",
    "controls": "laptop\x07\x1b[31m\ufffe\u2028",
    "lone surrogate": "laptop \ud800",
    "10 kB of one word": "laptop" * 1700,
    "10 kB of words": "laptop fan hot " * 700,
    "blanks": " \t\n",
    "nothing": "",
    "stop words": "to be or not to be",
    "mustache": "{{query}} ${jndi:x} %s",
}
PROPOSALS = [Proposal("overheating", 0.9), Proposal("C++ compiler", 0.5), Proposal("hot", 0.6), Proposal("laptop", 0.8)]


async def hits(cluster: Cluster, index: str, request: dict[str, Any]) -> tuple[int, list[str]]:
    """How many documents match, and their ids in order. Raises ClusterRefused for anything but 200 OK."""
    answer = await cluster.request("POST", f"/{index}/_search", body={"size": 50, **request})
    return answer["hits"]["total"]["value"], [hit["_id"] for hit in answer["hits"]["hits"]]


async def expanded(cluster: Cluster, index: str, text: str, *more: Proposal) -> Expansion:
    """By the method itself, with the node's own analysis and statistics."""
    target = await describe(cluster, index, ["title", "body"])
    phrases = clean_query([*PROPOSALS, *more], text=text)
    asked = [p.phrase for p in phrases if p.verdict is None]
    statistics = await DocumentFrequencies(cluster).look_up(
        target, [text, *asked], fields=["title", "body"], main_field="body"
    )
    return expand(text, phrases, statistics, rules=Rules(), human=HumanTerms())


@pytest.fixture
async def index(cluster: Cluster, index_name: str) -> str:
    await make_index(cluster, index_name, mappings=MAPPINGS)
    await fill(cluster, index_name, DOCUMENTS)
    return index_name


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
async def test_any_text_is_searched_for_in_every_mode(cluster: Cluster, index: str, text: str) -> None:
    expansion = await expanded(cluster, index, text, Proposal(text[:60], 0.7))
    for coverage in ("none", "partial", "full"):
        shape = Shape(FIELDS, coverage)
        found, original = await hits(cluster, index, {"query": original_query(text, shape)})
        for mode in MODES:
            total, ids = await hits(cluster, index, compile_search(text, expansion, shape, mode=mode))
            if mode == "recall":
                assert set(original) <= set(ids)
            else:
                assert total == found
                assert set(original) == set(ids)


async def test_recall_finds_what_only_the_expansion_names(cluster: Cluster, index: str) -> None:
    text = "computer"
    expansion = await expanded(cluster, index, text)
    assert await hits(cluster, index, {"query": original_query(text, Shape(FIELDS))}) == (0, [])
    total, ids = await hits(cluster, index, compile_search(text, expansion, Shape(FIELDS, "full")))
    assert total == len(ids) >= 2
    assert "heat" in ids


async def test_reach_finds_own_words_in_what_was_added(cluster: Cluster, index: str) -> None:
    text = "tunnel"
    for coverage, expected in (("none", []), ("partial", ["vpn"]), ("full", ["vpn"])):
        request = compile_search(text, Expansion(text, 5), Shape(FIELDS, coverage))  # type: ignore[arg-type]
        assert (await hits(cluster, index, request))[1] == expected


@pytest.mark.parametrize("mode", MODES)
async def test_the_engine_applies_each_boost(cluster: Cluster, index: str, mode: Mode) -> None:
    """Twice the boost of a pin adds twice as much to the score of the document that has its word."""

    async def score(boost: float) -> float:
        pin = Term("noise", (), ("nois",), 1.0, 1, True, 1.0, None, Verdict.PINNED, boost)
        terms = (pin,) if boost else ()
        request = compile_search("fan", Expansion("fan", 5, terms=terms), Shape(FIELDS), mode=mode)
        answer = await cluster.request("POST", f"/{index}/_search", body=request)
        return float(answer["hits"]["hits"][0]["_score"])

    plain, once, twice = await score(0), await score(1), await score(2)
    assert once > plain
    assert twice - plain == pytest.approx(2 * (once - plain), rel=1e-4)


async def test_a_word_of_several_tokens_matches_as_a_phrase_only(cluster: Cluster, index: str) -> None:
    def request(word: str) -> dict[str, Any]:
        term = Term(word, (word,), tuple(word.split("-")), 0.9, 1, True, 1.0, 1.0, Verdict.KEPT, 0.5)
        return compile_search("nothing", Expansion("nothing", 5, terms=(term,)), Shape(FIELDS, "full"))

    assert (await hits(cluster, index, request("fan-noise")))[1] == ["fan"]
    assert (await hits(cluster, index, request("noise-fan")))[1] == []


async def test_a_filter_of_the_callers_own_query_is_not_passed_by(cluster: Cluster, index: str) -> None:
    text = "laptop"
    query = {"bool": {"must": {"match": {"body": text}}, "filter": {"ids": {"values": ["heat", "vpn"]}}}}
    expansion = await expanded(cluster, index, text, Proposal("connection", 0.9))
    for mode in MODES:
        request = compile_search(text, expansion, Shape(FIELDS, "full"), mode=mode, body={"query": query})
        assert await hits(cluster, index, request) == (1, ["heat"])


async def test_rescore_beside_a_sort_is_what_engines_refuse(cluster: Cluster, index: str) -> None:
    expansion = await expanded(cluster, index, "laptop")
    request = compile_search("laptop", expansion, Shape(FIELDS), mode="rescore")
    with pytest.raises(ClusterRefused):
        await hits(cluster, index, {**request, "sort": ["_doc"]})


# The clause limit of the node is 1,024, its default.


def kept(words: Sequence[str]) -> tuple[Term, ...]:
    return tuple(Term(w, (w,), (w,), 0.9, 1, True, 3.0, 2.0, Verdict.KEPT, 0.1) for w in words)


def text_of(count: int) -> tuple[str, tuple[Word, ...]]:
    words = [f"word{i}" for i in range(count)]
    return " ".join(words), tuple(Word(w, (w,), 1) for w in words)


async def wide_index(cluster: Cluster, name: str, fields: int) -> tuple[tuple[str, float], ...]:
    names = [f"field{i}" for i in range(fields)]
    plain = {"type": "text"}
    await make_index(cluster, name, mappings={"properties": dict.fromkeys([*names, "enriched_terms"], plain)})
    await fill(cluster, name, {"1": {names[0]: "word1", "enriched_terms": ["word2"], "tenant": "a"}})
    return tuple((n, 1.0) for n in names)


@pytest.mark.parametrize("mode", MODES)
async def test_12_fields_40_terms_and_3_filters_stay_within_the_limit(
    cluster: Cluster, index_name: str, mode: Mode
) -> None:
    """elastic/elasticsearch#75297, opensearch-project/OpenSearch#3652: the limit counts the whole tree of a query."""
    fields = await wide_index(cluster, index_name, 12)
    for own in (3, 20, 40, 80):
        text, words = text_of(own)
        expansion = Expansion(text, 1, words, kept([f"other{i}" for i in range(40)]), allowance=10.0)
        filters = [{"exists": {"field": "field0"}}, {"exists": {"field": "enriched_terms"}}, {"match_all": {}}]
        query = {"bool": {"must": original_query(text, Shape(fields)), "filter": filters}}
        request = compile_search(text, expansion, Shape(fields, "full"), mode=mode, body={"query": query})
        assert await hits(cluster, index_name, request) == (1, ["1"])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("count", [100, 175, 200, 205, 500, 600, 1500])
@pytest.mark.parametrize("analysed", [True, False])
async def test_a_long_query_over_two_fields_stays_within_the_limit(
    cluster: Cluster, index_name: str, mode: Mode, count: int, analysed: bool
) -> None:
    fields = await wide_index(cluster, index_name, 2)
    text, words = text_of(count)
    coverage: Coverage = "full"
    expansion = Expansion(text, 1, words if analysed else (), kept([f"other{i}" for i in range(16)]), allowance=10.0)
    request = compile_search(text, expansion, Shape(fields, coverage), mode=mode)
    assert await hits(cluster, index_name, request) == (1, ["1"])


async def test_leaves_are_counted_as_the_node_counts_them(cluster: Cluster, index_name: str) -> None:
    """As many as allowed pass; engines let one more pass, and no further."""
    await counts_clauses_of_the_whole_tree(cluster)
    fields = await wide_index(cluster, index_name, 2)
    text, words = text_of(200)
    whole = compile_search(
        text, Expansion(text, 1, words, kept([f"o{i}" for i in range(8)])), Shape(fields, "partial", clause_limit=None)
    )
    assert leaves(whole["query"]["bool"]["should"][:2], 200) + 8 * 3 == 1024
    assert (await hits(cluster, index_name, whole))[0] == 1
    whole["query"]["bool"]["should"].append({"match": {"field0": "two more"}})
    with pytest.raises(ClusterRefused, match="1024"):
        await hits(cluster, index_name, whole)


async def test_what_is_compiled_is_plain_json(cluster: Cluster, index: str) -> None:
    request = compile_search("C++", await expanded(cluster, index, "C++"), Shape(FIELDS, "full"))
    assert await hits(cluster, index, json.loads(json.dumps(request))) == await hits(cluster, index, request)
