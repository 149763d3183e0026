"""Expansions that are given again: while fresh, while being renewed, and no longer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sira_es.expand.expanded import Expanded
from sira_es.expand.gathered import Gathered
from sira_es.expand.recent import Recent
from sira_es.vocabulary import HumanTerms
from sira_es.vocabulary.model import Expansion, Statistics

GATHERED = Gathered("fan", (), Statistics(5, ()), HumanTerms())
GOOD = Expanded(Expansion("fan", 5), GATHERED, "docs", "model", "store")
TAG = (object(), object())


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def recent(clock: Clock) -> Recent:
    return Recent(fresh=60, old=600, clock=clock)


def test_an_expansion_is_fresh_then_stale_then_gone(recent: Recent, clock: Clock) -> None:
    recent.put("key", TAG, GOOD)
    seen = []
    for now in (0, 59, 60, 599, 600):
        clock.now = now
        seen.append(recent.get("key", TAG))
    assert seen == [(GOOD, True), (GOOD, True), (GOOD, False), (GOOD, False), None]


def test_what_was_made_under_other_settings_or_terms_does_not_count(recent: Recent) -> None:
    recent.put("key", TAG, GOOD)
    assert recent.get("key", (TAG[0], object())) is None
    assert recent.get("other", TAG) is None


@pytest.mark.parametrize("bad", [replace(GOOD, origin=""), replace(GOOD, expansion=Expansion("fan", None))])
def test_a_failure_is_not_kept(recent: Recent, bad: Expanded) -> None:
    recent.put("key", TAG, bad)
    assert recent.get("key", TAG) is None
