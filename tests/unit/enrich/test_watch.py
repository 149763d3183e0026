"""Words in the terms of an implausible share of documents are held back."""

from __future__ import annotations

from sira_es.enrich.watch import FEWEST_DOCUMENTS, MOST_COUNTED, Watch

ENOUGH = FEWEST_DOCUMENTS


def watch(share: float, phrase: str = "best casino", in_texts: float = 0.0, **options: frozenset[str]) -> Watch:
    """A watch that saw a phrase kept in this share of documents, whose texts have its words in another."""
    made = Watch(**options)
    for number in range(ENOUGH):
        kept = {f"own{number}": {f"own{number}": 0.0}}
        if number < share * ENOUGH:
            kept[phrase] = dict.fromkeys(phrase.split(), in_texts)
        made.note(kept)
    made.look()
    return made


def test_phrase_of_a_third_of_the_documents_is_held_back_and_told() -> None:
    seen = watch(1 / 3)
    assert seen.holds("Best Casino")
    assert round(seen.held["best casino"], 2) == 0.34


def test_phrase_of_a_tenth_is_not() -> None:
    assert not watch(0.1).holds("best casino")


def test_word_that_is_in_half_of_all_terms_is_held_back_in_whatever_phrase() -> None:
    assert watch(0.6).holds("casino bonus")
    assert not watch(0.4).holds("casino bonus")


def test_what_the_texts_are_about_is_not_held_back() -> None:
    assert not watch(0.6, in_texts=0.3).holds("best casino")
    assert watch(0.6, in_texts=0.01).holds("best casino")


def test_a_few_documents_say_nothing_yet() -> None:
    young = Watch()
    for _ in range(FEWEST_DOCUMENTS - 1):
        young.note({"best casino": {}})
    young.look()
    assert not young.holds("best casino")


def test_what_people_allow_is_never_held_back() -> None:
    allowed = watch(1.0, allowed=frozenset({"Casino", "best casino", "best"}))
    assert not allowed.holds("best casino")


def test_a_later_run_goes_on_with_the_counts() -> None:
    assert Watch(watch(1.0).counts).holds("best casino")


def test_memory_is_bounded() -> None:
    many = Watch()
    for number in range(3 * MOST_COUNTED // 10):
        many.note({f"word{number}x{i}": {f"word{number}x{i}": 0.0} for i in range(10)})
    assert len(many._counts) <= MOST_COUNTED
    assert len(many._in_texts) <= 2 * MOST_COUNTED + 20
    assert len(many.counts) <= 1001
