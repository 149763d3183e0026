"""Looking words up on one index: how many requests that takes, what is kept, and what becomes of failures."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster.counting import add, create, documents, questions, words_of
from cluster.wire import Forward, Reply, Seen, Wire
from sira_es.cluster.connect import Cluster
from sira_es.cluster.statistics import Coverage, DocumentFrequencies
from sira_es.cluster.target import Target, describe
from sira_es.errors import ClusterUnreachable
from sira_es.vocabulary.model import Statistics

pytestmark = pytest.mark.anyio

ENGLISH = {"type": "text", "analyzer": "english"}
TEXTS = ["how do I bant the kent", "banted wi-fi", "unheard", "kents"]
FIELDS = ["title", "text"]


@pytest.fixture
async def target(wired: Cluster, wire: Wire, index_name: str) -> Target:
    """An index of 200 documents in three shards, half of them enriched; the wire's record starts empty."""
    properties = {"title": ENGLISH, "text": ENGLISH, "enriched_terms": ENGLISH}
    properties["sira"] = {"properties": {"source_hash": {"type": "keyword"}}}
    await create(wired, index_name, properties=properties, shards=3)
    sources: list[dict[str, Any]] = [*documents(200)]
    for source in sources[::2]:
        source.update(enriched_terms=["unheard"], sira={"source_hash": "x"})
    await add(wired, index_name, sources)
    found = await describe(wired, index_name, FIELDS)
    wire.clear()
    return found


async def look_up(
    frequencies: DocumentFrequencies, target: Target, texts: list[str] = TEXTS, **options: Any
) -> Statistics:
    return await frequencies.look_up(target, texts, fields=FIELDS, main_field="text", **options)


def asked(wire: Wire) -> list[str]:
    """What was asked since the last time, in order."""
    paths = [s.path.rpartition("/")[2] for s in wire.seen]
    wire.seen.clear()
    return paths


# Round trips


async def test_one_request_of_term_vectors_and_one_of_counts_when_cold(
    wired: Cluster, wire: Wire, target: Target
) -> None:
    found = await look_up(DocumentFrequencies(wired), target)
    assert asked(wire) == ["_mtermvectors", "_msearch"]
    assert [a.text for a in found.analyses] == TEXTS
    assert [[w.tokens for w in a.words] for a in found.analyses] == [
        [("how",), ("do",), ("i",), ("bant",), ("kent",)],
        [("bant",), ("wi",), ("fi",)],
        [("unheard",)],
        [("kent",)],
    ]


async def test_one_artificial_document_a_shard_tells_the_figures(wired: Cluster, wire: Wire, target: Target) -> None:
    await look_up(DocumentFrequencies(wired), target)
    items = wire.requests(".*/_mtermvectors")[0].json["docs"]
    telling = [i["routing"] for i in items if i.get("term_statistics")]
    assert sorted(telling) == sorted(target.indices[0].routing)
    assert len(telling) == 3


async def test_one_request_when_the_number_of_documents_is_known(wired: Cluster, wire: Wire, target: Target) -> None:
    frequencies = DocumentFrequencies(wired)
    await frequencies.coverage(target, FIELDS)
    asked(wire)
    await look_up(frequencies, target)
    assert asked(wire) == ["_mtermvectors"]


async def test_no_request_for_what_was_just_asked(wired: Cluster, wire: Wire, target: Target) -> None:
    frequencies = DocumentFrequencies(wired)
    first = await look_up(frequencies, target)
    asked(wire)
    assert await look_up(frequencies, target) == first
    assert await look_up(frequencies, target, list(reversed(TEXTS))) != first
    assert await frequencies.coverage(target, FIELDS)
    assert asked(wire) == []


async def test_counts_take_two_requests_for_any_number_of_words(wired: Cluster, wire: Wire, target: Target) -> None:
    """Ten phrases must not cost ten counts, as there is no look-up of term statistics (elastic/elasticsearch#21886)."""
    frequencies = DocumentFrequencies(wired)
    found = await look_up(frequencies, target, questions(60), exact=True)
    assert asked(wire) == ["_mtermvectors", "_msearch"]
    assert found.source == "counts"
    await look_up(frequencies, target, questions(60), exact=True)
    assert asked(wire) == []


async def test_counts_do_not_ask_for_statistics_that_the_caller_may_not_see(
    wired: Cluster, wire: Wire, target: Target
) -> None:
    await look_up(DocumentFrequencies(wired), target, restricted=True)
    items = wire.requests(".*/_mtermvectors")[0].json["docs"]
    assert not any(i.get("term_statistics") or i.get("field_statistics") for i in items)


async def test_a_page_of_documents_worth_of_phrases_is_one_request_of_term_vectors(
    wired: Cluster, wire: Wire, target: Target
) -> None:
    found = await look_up(DocumentFrequencies(wired), target, questions(800))
    assert wire.count(".*/_mtermvectors") == 1
    assert len(found.analyses) == 800


async def test_a_hundred_equal_look_ups_at_once_are_one(wired: Cluster, wire: Wire, target: Target) -> None:
    frequencies = DocumentFrequencies(wired)
    results = await asyncio.gather(*(look_up(frequencies, target) for _ in range(100)))
    assert asked(wire) == ["_mtermvectors", "_msearch"]
    assert all(r == results[0] for r in results)


async def test_figures_are_asked_again_when_their_time_is_over(wired: Cluster, wire: Wire, target: Target) -> None:
    frequencies = DocumentFrequencies(wired, ttl=0.3)
    await look_up(frequencies, target)
    asked(wire)
    await add(wired, target.name, [{"text": "unheard"}])
    await asyncio.sleep(0.35)
    asked(wire)
    found = await look_up(frequencies, target)
    assert asked(wire) == ["_mtermvectors", "_msearch"]
    assert found.analyses[2].words[0].df == 1


async def test_a_look_up_is_whole_however_little_is_kept(wired: Cluster, target: Target) -> None:
    small, large = DocumentFrequencies(wired, size=1), DocumentFrequencies(wired)
    for _ in range(2):
        assert await look_up(small, target, questions(40)) == await look_up(large, target, questions(40))


async def test_each_caller_has_figures_of_their_own(wired: Cluster, wire: Wire, target: Target) -> None:
    """elastic/elasticsearch#90701: what one user may count must not reach another through a cache."""
    ours = DocumentFrequencies(wired)
    await look_up(ours, target, restricted=True)
    asked(wire)
    theirs = ours.as_caller({"authorization": "Basic dXNlcjpwYXNz"})
    await look_up(theirs, target, restricted=True)
    assert [s.headers.get("authorization") for s in wire.seen] == ["Basic dXNlcjpwYXNz"] * 2
    assert asked(wire) == ["_mtermvectors", "_msearch"]
    await look_up(ours.as_caller({"authorization": "Basic dXNlcjpwYXNz"}), target, restricted=True)
    assert asked(wire) == []


# Coverage


async def test_coverage_counts_documents_those_with_text_and_those_enriched(
    wired: Cluster, wire: Wire, target: Target
) -> None:
    frequencies = DocumentFrequencies(wired)
    await add(wired, target.name, [{"other": 1}], _id="without-text")
    asked(wire)
    assert await frequencies.coverage(target, FIELDS) == Coverage(201, 200, 100)
    await frequencies.coverage(target, FIELDS)
    assert asked(wire) == ["_msearch"]


@pytest.mark.parametrize(
    ("coverage", "full"),
    [
        (Coverage(200, 100, 98), True),
        (Coverage(100, 100, 97), False),
        (Coverage(0, 0, 0), False),
        (Coverage(100, None, 100), False),
        (Coverage(100, 100, None), False),
    ],
)
async def test_fully_enriched_is_98_percent_of_the_documents_with_text(coverage: Coverage, full: bool) -> None:
    assert coverage.fully_enriched is full


# Failures


def failing_item(place: int) -> Any:
    def edit(answer: dict[str, Any]) -> None:
        answer["docs"][place] = {"_index": "x", "_id": "1", "error": {"type": "exception", "reason": "no"}}

    return edit


async def test_a_shard_without_term_vectors_leads_to_counts(wired: Cluster, wire: Wire, target: Target) -> None:
    """Smile-SA/elasticsuite#2664: what is missing from an answer is never taken for 0."""
    exact = await look_up(DocumentFrequencies(wired), target, exact=True)
    wire.on(".*/_mtermvectors", edit=failing_item(-1))
    asked(wire)
    found = await look_up(DocumentFrequencies(wired), target)
    assert asked(wire) == ["_mtermvectors", "_msearch"]
    assert found == exact
    assert found.source == "counts"


def without_text(answer: dict[str, Any]) -> None:
    del answer["docs"][-1]["term_vectors"]["text"]


async def test_a_shard_that_leaves_a_field_out_leads_to_counts(wired: Cluster, wire: Wire, target: Target) -> None:
    exact = await look_up(DocumentFrequencies(wired), target, exact=True)
    wire.on(".*/_mtermvectors", edit=without_text)
    assert await look_up(DocumentFrequencies(wired), target) == exact


async def test_an_absent_doc_freq_is_zero_on_that_shard(wired: Cluster, target: Target) -> None:
    found = await look_up(DocumentFrequencies(wired), target, ["unheard"])
    assert [(w.df, w.enriched_df, w.exact) for w in words_of(found)] == [(0, 100, True)]


async def test_a_text_that_is_not_analysed_is_split_at_white_space_and_counted(
    wired: Cluster, wire: Wire, target: Target
) -> None:
    wire.on(".*/_mtermvectors", edit=failing_item(0))
    found = await look_up(DocumentFrequencies(wired), target, ["Unheard, kent!", "kents"])
    assert [[w.tokens for w in a.words] for a in found.analyses] == [[("unheard",), ("kent",)], [("kent",)]]
    assert all(w.df is not None for w in words_of(found))


@pytest.mark.parametrize("status", [400, 403, 429, 500])
async def test_refused_term_vectors_lead_to_counts(wired: Cluster, wire: Wire, target: Target, status: int) -> None:
    wire.on(".*/_mtermvectors", status=status, body={"error": {"type": "x", "reason": "no"}, "status": status})
    found = await look_up(DocumentFrequencies(wired), target, ["kent", "unheard"])
    assert found.source == "counts"
    assert [w.enriched_df for w in words_of(found)] == [0, 100]


def partial(answer: dict[str, Any]) -> None:
    for response in answer["responses"]:
        response["_shards"]["failed"] = 1


def failed(answer: dict[str, Any]) -> None:
    answer["responses"] = [{"error": {"type": "x"}, "status": 500}] * len(answer["responses"])


def late(answer: dict[str, Any]) -> None:
    for response in answer["responses"]:
        response["timed_out"] = True


REFUSAL = {"error": {"type": "security_exception", "reason": "no"}, "status": 403}


@pytest.mark.parametrize(
    "rule",
    [
        {"edit": partial},
        {"edit": failed},
        {"edit": late},
        {"edit": lambda answer: {"responses": answer["responses"][1:]}},
        {"edit": lambda _: ["something", "else"]},
        {"status": 403, "body": REFUSAL},
        {"status": 200, "body": b"<html>"},
    ],
    ids=["shard failed", "items failed", "timed out", "item missing", "other form", "refused", "no JSON"],
)
async def test_what_cannot_be_counted_is_unknown_and_not_kept(
    wired: Cluster, wire: Wire, target: Target, rule: dict[str, Any]
) -> None:
    frequencies = DocumentFrequencies(wired)
    wire.on(".*/_msearch", **rule)
    found = await look_up(frequencies, target, exact=True)
    assert (found.documents, found.source) == (None, "none")
    assert {(w.df, w.enriched_df, w.exact) for w in words_of(found)} == {(None, None, False)}
    assert await frequencies.coverage(target, FIELDS) == Coverage(None, None, None)
    wire.clear()
    found = await look_up(frequencies, target, exact=True)
    assert (found.documents, found.source) == (200, "counts")
    assert None not in {w.df for w in words_of(found)}


async def test_one_failing_word_leaves_the_others_known(wired: Cluster, wire: Wire, target: Target) -> None:
    wire.on(".*/_msearch", edit=lambda answer: answer["responses"][3]["_shards"].update(failed=1))
    found = await look_up(DocumentFrequencies(wired), target, ["bant kent"], exact=True)
    bant, kent = words_of(found)
    assert (bant.df, bant.enriched_df) == (None, 0)
    assert kent.df


async def test_a_figure_of_another_form_is_no_figure(wired: Cluster, wire: Wire, target: Target) -> None:
    exact = await look_up(DocumentFrequencies(wired), target, exact=True)
    wire.on(
        ".*/_mtermvectors",
        edit=lambda answer: answer["docs"][-1].update(term_vectors={"text": {"terms": []}}),
    )
    assert await look_up(DocumentFrequencies(wired), target) == exact


async def test_no_answer_is_an_error(wired: Cluster, wire: Wire, target: Target) -> None:
    wire.on(".*", drop="before")
    with pytest.raises(ClusterUnreachable):
        await look_up(DocumentFrequencies(wired), target)


async def test_a_caller_that_gives_up_leaves_the_answer_to_the_next(wired: Cluster, wire: Wire, target: Target) -> None:
    wire.on(".*/_mtermvectors", delay=0.3)
    frequencies = DocumentFrequencies(wired)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(look_up(frequencies, target), 0.1)
    await look_up(frequencies, target)
    assert asked(wire) == ["_mtermvectors", "_msearch"]


async def test_closing_ends_a_look_up_under_way(wired: Cluster, wire: Wire, target: Target) -> None:
    late = asyncio.Event()

    async def wait(seen: Seen, forward: Forward) -> Reply:
        late.set()
        await asyncio.sleep(30)
        return await forward(seen)

    wire.on(".*/_mtermvectors", handler=wait)
    frequencies = DocumentFrequencies(wired)
    waiting = asyncio.ensure_future(look_up(frequencies, target))
    await late.wait()
    await frequencies.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting


# Hostile texts

HOSTILE = [
    "C++",
    "AC/DC",
    "(1+1)=2",
    "NOT",
    "foo:bar",
    '"',
    "\\",
    'say "kent" \\ now',
    "a\x00b",
    "\x00",
    "😀 kent🐱",
    "👩‍👩‍👧",
    "שלום \u202eعالم\u202c",
    "\ud83d kent",
    "kent\udc00",
    "kent " * 2000,
    "x" * 40_000,
    "é" * 10_000,
    "",
    " \t\n",
    "the of",
    "* AND title:*",
    "{{query}}",
    "\ufeff",
    "ﬁ ǅ ß İ",
]


@pytest.mark.parametrize("exact", [False, True])
async def test_any_text_can_be_looked_up(wired: Cluster, wire: Wire, target: Target, exact: bool) -> None:
    found = await look_up(DocumentFrequencies(wired), target, HOSTILE, exact=exact)
    assert [a.text for a in found.analyses] == HOSTILE
    words = {a.text: a.words for a in found.analyses}
    assert all(w.df is not None for a in found.analyses for w in a.words)
    assert [w.text for w in words["C++"]] == ["C"]
    assert [w.text for w in words["AC/DC"]] == ["AC", "DC"]
    assert [w.text for w in words["a\x00b"]] == ["b"]  # a stop word goes
    assert [w.text for w in words["😀 kent🐱"]] == ["😀", "kent", "🐱"]
    assert [w.text for w in words["\ud83d kent"]] == ["kent"]
    assert words[""] == words[" \t\n"] == words["the of"] == ()
    assert all(s.reply is not None and s.reply.status == 200 for s in wire.seen)


async def test_a_lone_surrogate_is_never_sent(wired: Cluster, wire: Wire, target: Target) -> None:
    await look_up(DocumentFrequencies(wired), target, ["kent\ud83d bant"], exact=True)
    assert all(b"\\ud83d" not in s.body.lower() for s in wire.seen)
    assert all(s.body.decode("utf-8") for s in wire.seen)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.text(st.characters(exclude_categories=()), max_size=20), max_size=8))
async def test_random_texts_agree_by_term_vectors_and_by_counts(
    wired: Cluster, target: Target, texts: list[str]
) -> None:
    found = [
        await DocumentFrequencies(wired).look_up(target, texts, fields=["text"], main_field="text", exact=exact)
        for exact in (False, True)
    ]
    assert found[0].analyses == found[1].analyses
