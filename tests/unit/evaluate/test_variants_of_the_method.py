"""Ablations: each leaves out what it says and nothing else, and the method itself does not know of them."""

from __future__ import annotations

import pytest

from sira_es.evaluate.variants import ABLATIONS, BASELINE, EXPANDED, Variant, another_budget
from sira_es.expand import Gathered
from sira_es.vocabulary import Analysis, Expansion, HumanTerms, Phrase, Rules, Statistics, Verdict, Word

DOCUMENTS = 1000


def word(text: str, df: int, enriched_df: int = 0) -> Word:
    return Word(text, (text,), df, enriched_df)


GATHERED = Gathered(
    text="noisy fan",
    phrases=(
        Phrase("noisy", 0.8, own=True),
        Phrase("cooler", 0.9),
        Phrase("loud ventilator", 0.5),
        Phrase("whirring", 0.4),
        Phrase("device", 0.6),
        Phrase("xyzzy", 0.3),
        Phrase("дом", 0.9, verdict=Verdict.SCRIPT),
    ),
    statistics=Statistics(
        DOCUMENTS,
        (
            Analysis("noisy fan", (word("noisy", 20), word("fan", 50))),
            Analysis("noisy", (word("noisy", 20),)),
            Analysis("cooler", (word("cooler", 30),)),
            Analysis("loud ventilator", (word("loud", 40), word("ventilator", 5))),
            Analysis("whirring", (word("whirring", 0, enriched_df=3),)),
            Analysis("device", (word("device", 700),)),
            Analysis("xyzzy", (word("xyzzy", 0),)),
        ),
    ),
    human=HumanTerms(),
)


def under(name: str) -> Expansion:
    variant = next(v for v in (EXPANDED, *ABLATIONS) if v.name == name)
    return variant.expansion(GATHERED, Rules())


def kept(expansion: Expansion) -> set[str]:
    return {t.word for t in expansion.terms if t.verdict is Verdict.KEPT}


def boosts(expansion: Expansion) -> dict[str, float]:
    return {t.word: t.boost for t in expansion.clauses}


def test_the_method_as_it_is() -> None:
    assert under("expanded") == GATHERED.expansion(Rules())
    assert kept(under("expanded")) == {"cooler", "loud", "ventilator", "whirring"}


def test_documents_only_has_no_word_for_the_query() -> None:
    assert under("documents").clauses == ()


def test_queries_only_knows_no_word_that_enrichment_brought() -> None:
    assert kept(under("queries")) == {"cooler", "loud", "ventilator"}


def test_without_the_filter_no_word_is_absent_common_or_weak() -> None:
    assert kept(under("no-df-filter")) == {"cooler", "loud", "ventilator", "whirring", "device", "xyzzy"}


def test_at_a_fixed_weight_a_word_weighs_its_confidence() -> None:
    assert boosts(under("fixed-weight")) == {
        "cooler": 0.9, "loud": 0.5, "ventilator": 0.5, "whirring": 0.4, "noisy": 0.4,
    }  # fmt: skip


def test_with_uniform_confidence_all_words_weigh_the_same() -> None:
    found = under("uniform-confidence")
    assert len({t.boost for t in found.clauses if t.verdict is Verdict.KEPT}) == 1


def test_words_only_leaves_out_what_was_proposed_as_several_words() -> None:
    assert kept(under("words-only")) == {"cooler", "whirring"}
    assert [p.phrase for p in under("words-only").phrases if p.verdict is Verdict.SCRIPT] == ["дом"]


def test_without_lift_the_own_words_are_not_weighted() -> None:
    assert "noisy" in boosts(under("expanded"))
    assert "noisy" not in boosts(under("no-lift"))


@pytest.mark.parametrize("budget", [0.0, 0.3, 2.4])
def test_another_budget_changes_the_weight_alone(budget: float) -> None:
    found = another_budget(budget).expansion(GATHERED, Rules())
    assert found == GATHERED.expansion(Rules(budget=budget))


def test_names_of_runs_are_tags_that_trec_files_can_hold() -> None:
    names = [v.name for v in (BASELINE, EXPANDED, *ABLATIONS)]
    assert len(set(names)) == len(names)
    assert all(name.split() == [name] for name in names)


def test_a_pinned_word_stays_when_phrases_are_left_out() -> None:
    pinned = Gathered(
        GATHERED.text,
        GATHERED.phrases,
        Statistics(DOCUMENTS, (*GATHERED.statistics.analyses, Analysis("quiet", (word("quiet", 9),)))),
        HumanTerms(pins={"noisy fan": (("quiet", 2.0),)}),
    )
    words_only: Variant = next(v for v in ABLATIONS if v.name == "words-only")
    assert boosts(words_only.expansion(pinned, Rules()))["quiet"] == 2.0
