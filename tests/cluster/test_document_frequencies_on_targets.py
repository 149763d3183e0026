"""df is the number of documents that a count of the same word gives, on every kind of target."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from cluster.counting import add, count, counted, create, documents, questions, words_of
from sira_es.cluster.connect import Cluster
from sira_es.cluster.statistics import DocumentFrequencies
from sira_es.cluster.target import describe
from sira_es.vocabulary.model import Statistics

pytestmark = pytest.mark.anyio

ENGLISH = {"type": "text", "analyzer": "english"}
TITLE_AND_TEXT = {"title": ENGLISH, "text": ENGLISH}
ENRICHED = {**TITLE_AND_TEXT, "enriched_terms": ENGLISH}


async def look_up(cluster: Cluster, name: str, texts: list[str], fields: list[str], **options: Any) -> Statistics:
    target = await describe(cluster, name, fields)
    return await DocumentFrequencies(cluster).look_up(target, texts, fields=fields, main_field=fields[0], **options)


async def assert_counted(cluster: Cluster, name: str, found: Statistics, fields: list[str], at_least: int) -> None:
    words = words_of(found)
    expected = await counted(cluster, name, words, fields)
    assert {w.text: w.df for w in words} == expected
    assert found.documents == await count(cluster, name, {"match_all": {}})
    assert len(words) >= at_least
    assert sum(n == 0 for n in expected.values()) >= 10
    assert len(set(expected.values())) > 5


@pytest.mark.parametrize("shards", [1, 3, 5])
async def test_one_field_by_term_vectors_equals_the_count(cluster: Cluster, index_name: str, shards: int) -> None:
    await create(cluster, index_name, properties=TITLE_AND_TEXT, shards=shards)
    await add(cluster, index_name, documents(400))
    found = await look_up(cluster, index_name, questions(1200), ["text"])
    assert found.source == "term_vectors"
    await assert_counted(cluster, index_name, found, ["text"], at_least=500)
    assert all(w.exact for w in words_of(found))


@pytest.mark.parametrize("shards", [1, 3])
async def test_several_fields_by_term_vectors_lie_between_the_largest_and_the_sum(
    cluster: Cluster, index_name: str, shards: int
) -> None:
    await create(cluster, index_name, properties=TITLE_AND_TEXT, shards=shards)
    await add(cluster, index_name, documents(300))
    found = await look_up(cluster, index_name, questions(1200), ["title", "text"])
    words = words_of(found)
    single = [await counted(cluster, index_name, words, [f]) for f in ("title", "text")]
    true = await counted(cluster, index_name, words, ["title", "text"])
    for word in words:
        largest = true[word.text] if len(word.tokens) > 1 else max(s[word.text] for s in single)  # those are counted
        assert word.df == largest <= true[word.text] <= sum(s[word.text] for s in single)
        assert word.exact == (largest == sum(s[word.text] for s in single))
    assert any(not w.exact for w in words)


async def test_several_fields_by_counts_are_exact(cluster: Cluster, index_name: str) -> None:
    await create(cluster, index_name, properties=TITLE_AND_TEXT, shards=3)
    await add(cluster, index_name, documents(300))
    found = await look_up(cluster, index_name, questions(1200), ["title", "text"], exact=True)
    assert found.source == "counts"
    await assert_counted(cluster, index_name, found, ["title", "text"], at_least=500)


async def test_fifty_look_ups_on_five_shards_give_one_value(cluster: Cluster, index_name: str) -> None:
    """elastic/elasticsearch#21906: term statistics of an artificial document come from one shard."""
    await create(cluster, index_name, properties=TITLE_AND_TEXT, shards=5)
    sources = [{"text": "rare" if i == 7 else "common"} for i in range(100)]
    await add(cluster, index_name, sources)
    target = await describe(cluster, index_name, ["text"])
    seen = set()
    for _ in range(50):
        fresh = DocumentFrequencies(cluster)
        found = await fresh.look_up(target, ["rare common absent"], fields=["text"], main_field="text")
        seen.add(tuple(w.df for w in words_of(found)))
    assert seen == {(1, 99, 0)}


async def test_with_a_third_of_the_documents_deleted_the_ratios_hold(cluster: Cluster, index_name: str) -> None:
    """elastic/elasticsearch#95444: doc_freq counts deleted documents."""
    await create(cluster, index_name, properties=TITLE_AND_TEXT, settings={"merge.policy.segments_per_tier": 50})
    sources = documents(1500)
    await add(cluster, index_name, sources)
    await add(cluster, index_name, sources[:640])  # each of them leaves a deleted copy
    found = await look_up(cluster, index_name, questions(1200), ["text"])
    words = [w for w in words_of(found) if len(w.tokens) == 1]
    expected = await counted(cluster, index_name, words, ["text"])
    assert found.documents == 1500
    assert any(not w.exact for w in words)
    for word in words:
        assert word.df is not None
        assert abs(word.df - expected[word.text]) <= 0.01 * 1500, word
        assert (word.df == 0) == (expected[word.text] == 0), word


async def test_updating_every_document_once_changes_no_ratio(cluster: Cluster, index_name: str) -> None:
    """elastic/elasticsearch#95444: what enriching does to every document must not double df/N."""
    await create(cluster, index_name, properties=ENRICHED, shards=3)
    await add(cluster, index_name, documents(600))
    before = await look_up(cluster, index_name, questions(1200), ["text"])
    lines: list[Any] = []
    for i in range(600):
        lines += [{"update": {"_id": str(i)}}, {"doc": {"enriched_terms": ["added words"]}}]
    await cluster.request("POST", f"/{index_name}/_bulk", params={"refresh": True}, lines=lines)
    after = await look_up(cluster, index_name, questions(1200), ["text"])
    assert before.documents == after.documents == 600
    for was, now in zip(words_of(before), words_of(after), strict=True):
        assert was.df is not None
        assert now.df is not None
        assert abs(was.df - now.df) <= 6, (was, now)
        assert (was.df == 0) == (now.df == 0)


async def test_words_of_enriched_terms_are_counted_apart(cluster: Cluster, index_name: str) -> None:
    await create(cluster, index_name, properties=ENRICHED, shards=3)
    await add(cluster, index_name, [{"text": "router", "enriched_terms": ["wlan boxes"]}, {"text": "box"}])
    for exact in (False, True):
        found = await look_up(cluster, index_name, ["router wlan box none"], ["text"], exact=exact)
        assert [(w.df, w.enriched_df) for w in words_of(found)] == [(1, 0), (0, 1), (1, 1), (0, 0)]


async def three_indices(cluster: Cluster, name: str, **properties: Any) -> None:
    for i, shards in enumerate((1, 2, 3)):
        await create(cluster, f"{name}-{i}", properties={**TITLE_AND_TEXT, **properties}, shards=shards)
        await add(cluster, f"{name}-{i}", documents(150, seed=i))


async def test_an_alias_of_three_indices_gives_their_sum(cluster: Cluster, index_name: str) -> None:
    """elastic/elasticsearch#65228: term vectors through an alias of many fail."""
    await three_indices(cluster, index_name)
    actions: list[Any] = [
        {"add": {"index": f"{index_name}-{i}", "alias": f"{index_name}-all", "is_write_index": i == 1}}
        for i in range(3)
    ]
    await cluster.request("POST", "/_aliases", body={"actions": actions})
    found = await look_up(cluster, f"{index_name}-all", questions(1200), ["text"])
    assert (found.source, found.documents) == ("counts", 450)
    await assert_counted(cluster, f"{index_name}-all", found, ["text"], at_least=200)


async def test_a_wildcard_and_a_list_give_the_sum(cluster: Cluster, index_name: str) -> None:
    await three_indices(cluster, index_name)
    for name in (f"{index_name}-*", f"{index_name}-0,{index_name}-2"):
        found = await look_up(cluster, name, questions(100), ["title", "text"])
        await assert_counted(cluster, name, found, ["title", "text"], at_least=80)


async def test_enriched_terms_in_one_of_three_indices_is_no_error(cluster: Cluster, index_name: str) -> None:
    await three_indices(cluster, index_name)
    await create(cluster, f"{index_name}-3", properties=ENRICHED)
    await add(cluster, f"{index_name}-3", [{"text": "x", "enriched_terms": ["onlythere"]}])
    found = await look_up(cluster, f"{index_name}-*", ["onlythere"], ["text"])
    assert [(w.df, w.enriched_df) for w in words_of(found)] == [(0, 1)]


async def test_an_alias_of_one_index_is_that_index(cluster: Cluster, index_name: str) -> None:
    await create(cluster, index_name, properties=TITLE_AND_TEXT, shards=3)
    await add(cluster, index_name, documents(200))
    alias = {"add": {"index": index_name, "alias": f"{index_name}-alias"}}
    await cluster.request("POST", "/_aliases", body={"actions": [alias]})
    found = await look_up(cluster, f"{index_name}-alias", questions(1200), ["text"])
    assert found.source == "term_vectors"
    await assert_counted(cluster, f"{index_name}-alias", found, ["text"], at_least=100)


async def test_a_filtered_alias_shows_only_its_documents(cluster: Cluster, index_name: str) -> None:
    await create(cluster, index_name, properties={**TITLE_AND_TEXT, "owner": {"type": "keyword"}}, shards=3)
    sources = [
        {**d, "owner": "ab"[i % 3 == 0], "text": d["text"] + " hidden" * (i % 3 > 0)}
        for i, d in enumerate(documents(300))
    ]
    await add(cluster, index_name, sources)
    alias = {"add": {"index": index_name, "alias": f"{index_name}-b", "filter": {"term": {"owner": "b"}}}}
    await cluster.request("POST", "/_aliases", body={"actions": [alias]})
    found = await look_up(cluster, f"{index_name}-b", [*questions(1200), "hidden"], ["text"])
    assert (found.source, found.documents) == ("counts", 100)
    assert {w.text: w.df for w in words_of(found)}["hidden"] == 0
    await assert_counted(cluster, f"{index_name}-b", found, ["text"], at_least=500)


async def test_a_restricted_caller_is_told_what_a_search_would_tell(cluster: Cluster, index_name: str) -> None:
    """opensearch-project/security#1579: term vectors reveal documents that the caller may not see."""
    await create(cluster, index_name, properties=TITLE_AND_TEXT, shards=3)
    await add(cluster, index_name, documents(100))
    found = await look_up(cluster, index_name, questions(100), ["text"], restricted=True)
    assert found.source == "counts"
    await assert_counted(cluster, index_name, found, ["text"], at_least=80)


async def test_a_data_stream_is_counted_over_its_backing_indices(cluster: Cluster, index_name: str) -> None:
    template = {
        "index_patterns": [f"{index_name}*"],
        "data_stream": {},
        "priority": 1000,
        "template": {
            "settings": {"number_of_shards": 2, "number_of_replicas": 0},
            "mappings": {"properties": {"@timestamp": {"type": "date"}, **ENRICHED}},
        },
    }
    await cluster.request("GET", f"/_data_stream/{index_name}*")
    await cluster.request("PUT", f"/_index_template/{index_name}", body=template)
    try:
        lines: list[Any] = []
        for i, source in enumerate(documents(200)):
            lines += [{"create": {"_id": str(i)}}, {**source, "@timestamp": "2024-05-01T00:00:00Z"}]
        for half in (lines[:200], lines[200:]):
            await cluster.request("POST", f"/{index_name}/_bulk", params={"refresh": True}, lines=half)
            await cluster.request("POST", f"/{index_name}/_rollover")
        found = await look_up(cluster, index_name, questions(1200), ["text"])
        assert (found.source, found.documents) == ("counts", 200)
        assert ("bant",) in {w.tokens for w in words_of(await look_up(cluster, index_name, ["banting"], ["text"]))}
        await assert_counted(cluster, index_name, found, ["text"], at_least=100)
        backing = (await describe(cluster, index_name, ["text"])).indices[0].name
        found = await look_up(cluster, backing, questions(1200), ["text"])
        assert (found.source, found.documents) == ("term_vectors", 100)
        await assert_counted(cluster, backing, found, ["text"], at_least=100)
    finally:
        await cluster.request("DELETE", f"/_data_stream/{index_name}")
        await cluster.request("DELETE", f"/_index_template/{index_name}")


async def test_a_partitioned_index_is_counted(cluster: Cluster, index_name: str) -> None:
    await create(
        cluster,
        index_name,
        properties=TITLE_AND_TEXT,
        shards=4,
        settings={"routing_partition_size": 2},
        mappings={"_routing": {"required": True}},
    )
    await add(cluster, index_name, documents(200), routing="a")
    found = await look_up(cluster, index_name, questions(1200), ["text"])
    assert found.source == "counts"
    assert all(w.tokens != (w.text,) for w in words_of(found) if w.text.istitle())  # analysed, not guessed
    await assert_counted(cluster, index_name, found, ["text"], at_least=100)


async def test_required_routing_does_not_matter(cluster: Cluster, index_name: str) -> None:
    await create(cluster, index_name, properties=TITLE_AND_TEXT, shards=3, mappings={"_routing": {"required": True}})
    await add(cluster, index_name, documents(200), routing="a")
    found = await look_up(cluster, index_name, questions(1200), ["text"])
    await assert_counted(cluster, index_name, found, ["text"], at_least=100)


async def test_under_concurrent_writes_ratios_stay_between_those_before_and_after(
    cluster: Cluster, index_name: str
) -> None:
    await create(cluster, index_name, properties=TITLE_AND_TEXT, shards=3)
    await add(cluster, index_name, [{"text": "steady"}] * 50 + [{"text": "other"}] * 50)
    target = await describe(cluster, index_name, ["text"])
    done = asyncio.Event()

    async def write() -> None:
        for i in range(20):
            lines = [{"index": {"_id": f"new-{i}"}}, {"text": "growing steady"}]
            lines += [
                {"index": {"_id": f"{i}"}},
                {"text": "steady"},
                {"index": {"_id": f"{50 + i}"}},
                {"text": "other"},
            ]
            await cluster.request("POST", f"/{index_name}/_bulk", params={"refresh": True}, lines=lines)
        done.set()

    async def read() -> int:
        number = 0
        while not done.is_set():
            found = await DocumentFrequencies(cluster).look_up(
                target, ["steady growing"], fields=["text"], main_field="text"
            )
            steady, growing = (w.df for w in words_of(found))
            assert steady is not None
            assert growing is not None
            assert found.documents is not None
            assert 100 <= found.documents <= 120
            assert 0.5 - 0.02 <= steady / found.documents <= 70 / 120 + 0.02
            assert 0 <= growing / found.documents <= 20 / 120 + 0.02
            number += 1
        return number

    _, number = await asyncio.gather(write(), read())
    assert number >= 3


ANALYZERS: dict[str, Any] = {
    "analyzer": {
        "synonyms": {"tokenizer": "standard", "filter": ["lowercase", "same"]},
        "delimiters": {"tokenizer": "whitespace", "filter": ["parts", "flatten_graph", "lowercase"]},
        "compounds": {"tokenizer": "standard", "filter": ["lowercase", "decompound"]},
        "shingles": {"tokenizer": "standard", "filter": ["lowercase", "pairs"]},
        "html": {"tokenizer": "standard", "char_filter": ["html_strip"], "filter": ["lowercase"]},
        "short": {"tokenizer": "standard", "filter": ["lowercase", "two"]},
        "prefixes": {"tokenizer": "standard", "filter": ["lowercase", "beginnings"]},
        "plain": {"tokenizer": "standard", "filter": ["lowercase"]},
    },
    "filter": {
        "same": {"type": "synonym_graph", "synonyms": ["bant,kent", "tirk => loldner", "bast,muld volcel tont"]},
        "parts": {"type": "word_delimiter_graph", "preserve_original": True, "catenate_all": True},
        "decompound": {
            "type": "dictionary_decompounder",
            "word_list": ["ba", "nt", "ke", "rk", "gat", "ing"],
            "min_word_size": 4,
        },
        "pairs": {"type": "shingle"},
        "beginnings": {"type": "edge_ngram", "min_gram": 2, "max_gram": 10},
        "two": {"type": "limit", "max_token_count": 2},
    },
}


def analysis_of(names: Iterable[str]) -> dict[str, Any]:
    """The definitions of these analyzers and of what they need, and of no others."""
    analyzers = {name: ANALYZERS["analyzer"][name] for name in names if name in ANALYZERS["analyzer"]}
    needed = {part for a in analyzers.values() for part in a["filter"]}
    return {"analyzer": analyzers, "filter": {k: v for k, v in ANALYZERS["filter"].items() if k in needed}}


@pytest.mark.parametrize(
    "field",
    [
        {"analyzer": "english"},
        {"analyzer": "standard"},
        {"analyzer": "cjk"},
        {"analyzer": "whitespace"},
        {"analyzer": "delimiters"},
        {"analyzer": "compounds"},
        {"analyzer": "html"},
        {"analyzer": "shingles"},
        {"analyzer": "short"},
        {"analyzer": "standard", "search_analyzer": "synonyms"},
        {"analyzer": "prefixes", "search_analyzer": "plain"},
    ],
    ids=lambda f: f"{f['analyzer']} {f.get('search_analyzer', '')}".strip(),
)
async def test_df_equals_the_count_whatever_the_analyzer(
    cluster: Cluster, index_name: str, field: dict[str, str]
) -> None:
    settings = {"analysis": analysis_of(field.values())}
    await create(cluster, index_name, properties={"text": {"type": "text", **field}}, shards=2, settings=settings)
    await add(cluster, index_name, documents(300, ["text"]))
    found = await look_up(cluster, index_name, questions(1200), ["text"])
    words = words_of(found)
    assert found.source == "term_vectors"
    assert {w.text: w.df for w in words} == await counted(cluster, index_name, words, ["text"])
    assert sum(bool(w.df) for w in words) > 30


async def test_fields_with_different_analyzers_are_matched_by_offsets(cluster: Cluster, index_name: str) -> None:
    properties = {
        "text": ENGLISH,
        "words": {"type": "text", "analyzer": "whitespace"},
        "pairs": {"type": "text", "analyzer": "cjk"},
    }
    await create(cluster, index_name, properties=properties, shards=2)
    await add(cluster, index_name, documents(200, ["text", "words", "pairs"]))
    fields = ["text", "words", "pairs"]
    found = await look_up(cluster, index_name, questions(1200), fields)
    words = words_of(found)
    true = await counted(cluster, index_name, words, fields)
    single = [await counted(cluster, index_name, words, [f]) for f in fields]
    for word in words:
        if word.exact:
            assert word.df == true[word.text], word
        else:
            assert word.df == max(s[word.text] for s in single), word
    assert any(w.exact and w.df for w in words)
    assert any(not w.exact for w in words)


async def test_sub_fields_objects_and_copies_are_looked_up(cluster: Cluster, index_name: str) -> None:
    properties = {
        "title": {"type": "text", "copy_to": "all", "fields": {"stems": ENGLISH, "raw": {"type": "keyword"}}},
        "part": {"properties": {"text": ENGLISH}},
        "all": {"type": "text"},
    }
    await create(cluster, index_name, properties=properties, shards=2, mappings={"dynamic": "strict"})
    sources = [{"title": d["title"], "part": {"text": d["text"]}} for d in documents(200)]
    await add(cluster, index_name, sources)
    for field in ("title.stems", "part.text", "all"):
        found = await look_up(cluster, index_name, questions(120), [field])
        assert found.source == "term_vectors"
        await assert_counted(cluster, index_name, found, [field], at_least=80)
    fields = ["title.stems", "part.text", "all"]
    found = await look_up(cluster, index_name, questions(120), fields)
    words = words_of(found)
    single = [await counted(cluster, index_name, words, [f]) for f in fields]
    true = await counted(cluster, index_name, words, fields)
    for word in words:
        assert word.df == (true[word.text] if word.exact else max(s[word.text] for s in single)), word
