"""Words in the terms of an implausible share of documents are held back."""

from __future__ import annotations

from sira_es.enrich.watch import FEWEST_DOCUMENTS, MOST_COUNTED, Watch
from sira_es.vocabulary import Analysis, Word

ENOUGH = FEWEST_DOCUMENTS
DOCUMENTS = 1000


def analysis(phrase: str, share: float) -> Analysis:
    """A phrase whose words this share of the texts have."""
    return Analysis(phrase, tuple(Word(w, (w,), round(share * DOCUMENTS)) for w in phrase.split()))


def watch(share: float, phrase: str = "best casino", in_texts: float = 0.0, **options: frozenset[str]) -> Watch:
    """A watch that saw a phrase kept in this share of documents, whose texts have its words in another."""
    made = Watch(**options)
    made.learn([analysis(phrase, in_texts)], DOCUMENTS)
    made.note([[f"own{n}", *([phrase] if n < share * ENOUGH else [])] for n in range(ENOUGH)])
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
    young.note([["best casino"]] * (FEWEST_DOCUMENTS - 1))
    young.look()
    assert not young.holds("best casino")


def test_what_came_up_after_a_look_is_held_back_at_a_later_one() -> None:
    seen = watch(0.0)
    seen.note([["best casino"]] * ENOUGH)
    assert not seen.holds("best casino")
    seen.look()
    assert seen.holds("best casino")


def test_what_the_texts_turn_out_to_be_about_is_let_through_at_once() -> None:
    later = Watch(watch(1.0).counts, counting=False)
    assert later.holds("best casino")
    later.learn([analysis("best casino", 0.5)], DOCUMENTS)
    later.look()
    assert not later.holds("best casino")


def test_what_people_allow_is_never_held_back() -> None:
    allowed = watch(1.0, allowed=frozenset({"Casino", "best casino", "best"}))
    assert not allowed.holds("best casino")


def test_a_later_run_goes_on_with_the_counts() -> None:
    assert Watch(watch(1.0).counts).holds("best casino")


def test_memory_is_bounded() -> None:
    many = Watch()
    for number in range(3 * MOST_COUNTED // 10):
        phrases = [f"word{number}x{i}" for i in range(10)]
        many.learn([analysis(phrase, 0.5) for phrase in phrases], DOCUMENTS)
        many.note([phrases])
    assert len(many._counts) <= MOST_COUNTED
    assert len(many._in_texts) <= 2 * MOST_COUNTED + 20
    assert len(many.counts) <= 1001
