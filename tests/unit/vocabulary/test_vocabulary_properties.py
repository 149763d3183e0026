"""What holds for any answer of a model, any text and any statistics."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sira_es.vocabulary as room
from sira_es.vocabulary import HumanTerms, Proposal, Rules, Verdict, clean_document, clean_query
from unit.vocabulary.toy_index import ToyIndex

LETTERS = st.sampled_from(
    [*"abcdexyz éßİı東ノйअी", "\x00", "\ud800", "\u202e", "👩‍💻", "\u0301", "\u200d", "-", "+", "\n"]
)
TEXT = st.one_of(st.text(st.characters(), max_size=80), st.lists(LETTERS, max_size=30).map("".join))
CONFIDENCE = st.one_of(st.floats(), st.floats(0, 1))
WORD = st.sampled_from([f"w{i}" for i in range(12)] + ["laptops", "laptop", "of", "fussballspiel", "fussball"])
PHRASE = st.lists(WORD, min_size=1, max_size=3).map(" ".join)
PROPOSALS = st.lists(st.builds(Proposal, PHRASE | TEXT, CONFIDENCE, TEXT, st.booleans()), max_size=30)
DF = st.none() | st.integers(0, 1200)
INDEX = st.builds(
    ToyIndex,
    documents=st.none() | st.integers(0, 1000),
    df=st.dictionaries(WORD, DF, max_size=12),
    enriched=st.dictionaries(WORD, DF, max_size=4),
    usual=DF,
)
RULES = st.builds(
    Rules,
    budget=st.floats(0, 10),
    knee=st.floats(0, 50),
    lift=st.floats(0, 2),
    max_terms=st.integers(0, 20),
    min_margin=st.floats(-1, 3),
    max_df=st.floats(0.01, 1),
)
QUERY = st.lists(WORD, max_size=6).map(" ".join)
HUMAN = st.builds(
    HumanTerms,
    block=st.frozensets(PHRASE | TEXT, max_size=3),
    allow=st.frozensets(PHRASE | TEXT, max_size=3),
    pins=st.dictionaries(
        QUERY, st.lists(st.tuples(PHRASE | TEXT, st.floats(0.001, 100)), max_size=3).map(tuple), max_size=4
    ),
)


def counts(term):
    return term.lifted or term.verdict in {Verdict.KEPT, Verdict.PINNED}


@given(PROPOSALS, TEXT, st.sampled_from(["", "ja", "ru", "xx"]))
def test_cleaning_what_was_cleaned_changes_nothing(proposals, text, language):
    once = clean_query(proposals, text=text, language=language)
    good = [p for p in once if p.verdict is None]
    again = [Proposal(p.phrase, p.confidence, p.stands_for, p.own) for p in good]
    assert list(clean_query(again, text=text, language=language)) == good


@given(PROPOSALS, st.lists(TEXT, max_size=3), st.booleans())
def test_every_proposal_for_a_document_becomes_one_phrase_that_is_safe_to_send(proposals, values, questions):
    phrases = clean_document(proposals, values=values, questions=questions)
    assert len(phrases) == len(proposals)
    good = [p.phrase for p in phrases if p.verdict is None]
    assert len(good) <= 10
    assert all(p.isprintable() and p.encode() and p == p.strip() and 0 < len(p) <= 120 for p in good)


@given(INDEX, QUERY | TEXT, PROPOSALS, RULES, HUMAN)
def test_every_phrase_and_every_word_gets_exactly_one_verdict(index, text, proposals, rules, human):
    expansion = index.expand(text, proposals, rules=rules, human=human)
    assert len(expansion.phrases) == len(proposals)
    assert all(isinstance(p.verdict, Verdict) and 0 < p.confidence <= 1 for p in expansion.phrases)
    assert max(Counter(t.tokens for t in expansion.terms).values(), default=1) == 1


@given(INDEX, QUERY | TEXT, PROPOSALS, RULES, HUMAN)
def test_an_expansion_never_weighs_more_than_its_allowance(index, text, proposals, rules, human):
    expansion = index.expand(text, proposals, rules=rules, human=human)
    assert all(math.isfinite(t.boost) and t.boost >= 0 for t in expansion.terms)
    kept = [t for t in expansion.terms if t.verdict is Verdict.KEPT]
    assert len(kept) <= rules.max_terms
    rounding = sum(5e-5 * t.idf for t in kept) + 1e-9
    assert sum(t.boost * t.idf for t in kept) <= expansion.allowance + rounding
    assert 0 <= expansion.scale <= 1
    assert all(t.boost == 0 for t in expansion.terms if t.verdict not in {"kept", "pinned"} and not t.lifted)
    assert kept or not any(t.lifted for t in expansion.terms)


@given(INDEX, QUERY, PROPOSALS, RULES, HUMAN)
def test_the_same_arguments_give_the_same_expansion(index, text, proposals, rules, human):
    assert repr(index.expand(text, proposals, rules=rules, human=human)) == repr(
        index.expand(text, proposals, rules=rules, human=human)
    )


@given(
    INDEX,
    QUERY,
    st.lists(st.tuples(st.integers(0, 9), st.floats(0.01, 1)), min_size=1, max_size=10, unique_by=lambda w: w[0]),
    st.floats(0, 1),
    RULES,
)
def test_more_confidence_in_a_word_never_does_it_harm(index, text, proposals, more, rules):
    proposals = [(f"w{i}", p) for i, p in proposals]
    word, p = proposals[0]
    lower = index.expand(text, proposals, rules=rules)
    higher = index.expand(text, [(word, min(1.0, p + more)), *proposals[1:]], rules=rules)
    [before] = [t for t in lower.terms if t.word == word]
    [after] = [t for t in higher.terms if t.word == word]
    order = ["kept", "capped", "weak"]
    if before.verdict in order:
        assert order.index(after.verdict) <= order.index(before.verdict)
    else:
        assert after.verdict == before.verdict
    assert before.margin is None or after.margin >= before.margin
    if before.verdict == "kept":
        assert after.boost >= before.boost - 1e-4


@given(INDEX, QUERY, PROPOSALS, RULES, HUMAN, st.integers(0, 20), st.integers(0, 5), st.none() | st.integers(0, 3))
def test_cutting_adds_no_word_keeps_the_order_and_fits_the_limits(
    index, text, proposals, rules, human, kept, lifted, pinned
):
    whole = index.expand(text, proposals, rules=rules, human=human)
    cut = whole.limited_to(kept, lifted, pinned)
    assert [t.word for t in cut.terms] == [t.word for t in whole.terms]
    assert {t.word for t in cut.terms if counts(t)} <= {t.word for t in whole.terms if counts(t)}
    assert sum(t.verdict is Verdict.KEPT for t in cut.clauses) <= kept
    assert sum(t.lifted for t in cut.clauses) <= lifted
    assert pinned is None or sum(t.verdict is Verdict.PINNED for t in cut.clauses) <= pinned
    assert cut.limited_to(kept, lifted, pinned) == cut


@pytest.mark.parametrize(
    "attack", ["\ud800" * 70, "\x00", "\u202e" * 5, "👩‍💻" * 20, "a\u0301" * 40, '{"query": {"match_all": {}}}']
)
def test_no_text_breaks_a_query_or_a_document(attack):
    ToyIndex().expand(attack, [(attack, 0.5), ("hub", 0.5)])
    ToyIndex().judge_document([attack], text=attack)


def test_the_public_names_are_sorted_and_there():
    assert sorted(room.__all__) == room.__all__
    assert all(hasattr(room, name) for name in room.__all__)
