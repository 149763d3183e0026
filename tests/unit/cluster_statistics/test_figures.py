"""What term vectors and counts say of a word, and what they do not say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sira_es.cluster.analysis import RawWord
from sira_es.cluster.figures import (
    Asked,
    Field,
    Figures,
    analysis_items,
    analysis_of,
    counts_in,
    field_sums,
    figures_of,
    scaled,
    statistics_items,
    word_query,
)

TITLE = Field("title", "title", "english", "english")
TEXT = Field("text", "text", "english", "english")
ENRICHED = Field("enriched_terms", "enriched_terms", "english", "english")
WORDS = Field("title.words", "title", "standard", "whitespace")
FOX = RawWord("Foxes", ("fox",))


def asked(
    *fields: Field, enriched: Field | None = None, routing: tuple[str, ...] = ("5", "0"), dated: bool = False
) -> Asked:
    return Asked("docs", routing, fields[0], fields, enriched, dated)


def vector(doc_count: int, **doc_freqs: int | None) -> dict[str, Any]:
    terms = {t: {"term_freq": 1} if n is None else {"term_freq": 1, "doc_freq": n} for t, n in doc_freqs.items()}
    return {"field_statistics": {"doc_count": doc_count, "sum_doc_freq": 9, "sum_ttf": 9}, "terms": terms}


def shard(**vectors: dict[str, Any]) -> dict[str, Any]:
    return {"_index": "docs", "term_vectors": vectors}


ERROR = {"_index": "docs", "_id": "1", "error": {"type": "exception", "reason": "no"}}


def looked_up(to: Asked, items: list[Any], word: RawWord = FOX) -> Figures | None:
    sums = field_sums(to, items, [word])
    return None if sums is None else figures_of(to, word, sums)


# Sums


def test_df_is_the_sum_over_the_shards_and_absent_is_zero() -> None:
    items = [shard(text=vector(10, fox=3)), shard(text=vector(12, fox=None))]
    assert looked_up(asked(TEXT), items) == Figures(3, 0, exact=True, doc_count=22)


def test_df_over_several_fields_is_the_largest_and_not_exact() -> None:
    items = [
        shard(title=vector(9, fox=2), text=vector(10, fox=3)),
        shard(title=vector(9, fox=2), text=vector(12, fox=None)),
    ]
    assert looked_up(asked(TITLE, TEXT), items) == Figures(4, 0, exact=False, doc_count=22)


def test_df_over_several_fields_is_exact_where_only_one_has_the_word() -> None:
    items = [shard(title=vector(9, fox=None), text=vector(10, fox=3))] * 2
    assert looked_up(asked(TITLE, TEXT), items) == Figures(6, 0, exact=True, doc_count=20)


def test_enriched_terms_count_apart() -> None:
    items = [shard(text=vector(10, fox=None), enriched_terms=vector(5, fox=2))] * 2
    assert looked_up(asked(TEXT, enriched=ENRICHED), items) == Figures(0, 4, exact=True, doc_count=20)


@pytest.mark.parametrize(
    "items",
    [
        [shard(text=vector(10, fox=3)), ERROR],
        [shard(text=vector(10, fox=3))],
        [shard(text=vector(10, fox=3)), shard()],
        [shard(text=vector(10, fox=3)), None],
        [shard(text=vector(10, fox=3)), {"term_vectors": {"text": {"terms": {}}}}],
        [shard(text=vector(10, fox=3)), {"term_vectors": {"text": {"terms": {"fox": 3}, "field_statistics": {}}}}],
    ],
    ids=["item error", "shard missing", "field missing", "null", "no statistics", "other form"],
)
def test_what_a_shard_does_not_tell_is_unknown(items: list[Any]) -> None:
    assert looked_up(asked(TEXT), items) is None


def test_a_token_that_the_answer_does_not_name_is_unknown() -> None:
    assert looked_up(asked(TEXT), [shard(text=vector(10, foxes=3))] * 2) is None


def test_several_tokens_are_left_to_counts() -> None:
    word = RawWord("Wi-Fi", ("wi-fi", "wi"))
    assert looked_up(asked(TEXT), [shard(text=vector(10, **{"wi-fi": 1, "wi": 2}))] * 2, word) is None


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (("Foxes",), Figures(14, 0, exact=False, doc_count=20)),
        ((), Figures(6, 0, doc_count=20)),
        (("a", "b"), None),
        (None, None),
    ],
)
def test_another_analyzers_token_is_looked_up_in_its_field(
    other: tuple[str, ...] | None, expected: Figures | None
) -> None:
    items = [shard(text=vector(10, fox=3), **{"title.words": vector(9, Foxes=7, a=1, b=1)})] * 2
    assert looked_up(asked(TEXT, WORDS), items, RawWord("Foxes", ("fox",), (other,))) == expected


# Deleted documents


def test_deleted_documents_are_scaled_out() -> None:
    assert scaled(Figures(60, 10, doc_count=200), 100) == Figures(30, 5, exact=False)


def test_nothing_is_scaled_where_no_field_counts_more_documents_than_there_are() -> None:
    assert scaled(Figures(60, 10, doc_count=90), 100) == Figures(60, 10)


def test_counts_are_not_scaled() -> None:
    assert scaled(Figures(60, 10), 100) == Figures(60, 10)


def test_an_unknown_number_of_documents_scales_nothing() -> None:
    assert scaled(Figures(60, 10, doc_count=200), None).df == 60


NUMBERS = st.integers(0, 10**7)


@given(NUMBERS, NUMBERS, NUMBERS, st.integers(1, 10**7))
def test_a_scaled_df_is_at_most_n_and_zero_only_where_it_was(
    df: int, enriched: int, doc_count: int, documents: int
) -> None:
    found = scaled(Figures(df, enriched, doc_count=doc_count), documents)
    assert found.df is not None
    assert found.enriched_df is not None
    assert 0 <= found.df <= documents
    assert (found.df == 0) == (df == 0)
    assert (found.enriched_df == 0) == (enriched == 0)
    if df <= doc_count and doc_count > documents and found.df > 1:
        assert abs(found.df / documents - df / doc_count) <= 0.5 / documents + 1e-9


# Requests


def test_each_text_is_a_document_of_its_own_for_each_analyzer() -> None:
    items = analysis_items(asked(TEXT, WORDS), ["a", "b"])
    assert [(i["doc"], i.get("per_field_analyzer")) for i in items] == [
        ({"text": "a"}, None),
        ({"text": "a"}, {"text": "whitespace"}),
        ({"text": "b"}, None),
        ({"text": "b"}, {"text": "whitespace"}),
    ]


def test_texts_are_analysed_in_the_name_of_a_field_that_no_other_holds() -> None:
    (item, other) = analysis_items(asked(WORDS, TEXT), ["a"])
    assert (item["fields"], item["per_field_analyzer"]) == (["text"], {"text": "whitespace"})
    assert (other["fields"], other.get("per_field_analyzer")) == (["text"], None)


def test_each_shard_is_asked_once_with_all_texts_under_the_search_analyzers() -> None:
    items = statistics_items(asked(TEXT, WORDS, enriched=ENRICHED), ["a", "b"])
    assert [i["routing"] for i in items] == ["5", "0"]
    assert items[0]["doc"] == {"text": ["a", "b"], "title": ["a", "b"], "enriched_terms": ["a", "b"]}
    assert items[0]["fields"] == ["text", "title.words", "enriched_terms"]
    assert items[0]["per_field_analyzer"] == {"title.words": "whitespace"}


def test_an_unmapped_enriched_terms_is_never_sent() -> None:
    sent = [*analysis_items(asked(TEXT), ["a"]), *statistics_items(asked(TEXT), ["a"])]
    assert all(list(i["doc"]) == ["text"] for i in sent)


def test_a_part_of_a_data_stream_gets_a_time() -> None:
    assert "@timestamp" in analysis_items(asked(TEXT, dated=True), ["a"])[0]["doc"]


def test_one_token_is_counted_as_a_word_and_several_as_a_phrase() -> None:
    one = word_query(FOX, ["title", "text"])
    several = word_query(RawWord("日本語", ("日本", "本語")), ["text"])
    assert one == {"multi_match": {"query": "Foxes", "fields": ["title", "text"], "operator": "and"}}
    assert several == {"multi_match": {"query": "日本語", "fields": ["text"], "type": "phrase"}}


# Answers


@pytest.mark.parametrize("items", [[], [ERROR], [None], [{"term_vectors": {"text": {"terms": {"a": {}}}}}]])
def test_a_text_without_an_analysis_has_none(items: list[Any]) -> None:
    assert analysis_of(asked(TEXT), "a", items) is None


def test_a_text_of_stop_words_has_no_words() -> None:
    assert analysis_of(asked(TEXT), "the", [{"term_vectors": {}}]) == ()


def total(value: int, failed: int = 0, **more: Any) -> dict[str, Any]:
    return {"_shards": {"failed": failed}, "hits": {"total": {"value": value}}, "status": 200, **more}


def test_a_count_that_did_not_reach_every_shard_is_unknown() -> None:
    responses = [
        total(3),
        total(3, failed=1),
        {"error": {"type": "x"}, "status": 400},
        total(3, timed_out=True),
        None,
        {},
    ]
    assert counts_in({"responses": responses}, 6) == [3, None, None, None, None, None]


@pytest.mark.parametrize("answer", [None, [], {}, {"responses": [total(1)]}, {"responses": "x"}])
def test_an_answer_of_another_length_or_form_counts_nothing(answer: Any) -> None:
    assert counts_in(answer, 2) == [None, None]
