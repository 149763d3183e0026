"""An expansion as JSON and in words."""

from __future__ import annotations

import json

from sira_es.expand.expanded import Expanded
from sira_es.expand.gathered import Gathered
from sira_es.expand.skip import Skip, Why
from sira_es.vocabulary import HumanTerms
from sira_es.vocabulary.model import Expansion, Phrase, Statistics, Term, Verdict

GATHERED = Gathered("hot laptop", (), Statistics(100, ()), HumanTerms())
KEPT = Term("fan", ("loud fan",), ("fan",), 0.7, 4, False, 3.1, 2.05, Verdict.KEPT, 0.21)
UNKNOWN = Term("hot", (), ("hot",), 1.0, None, False, 4.6, None, Verdict.PINNED, 0.5)


def test_a_term_tells_what_was_said_known_and_decided() -> None:
    phrases = (Phrase("перегрев", 0.9, verdict=Verdict.SCRIPT, reason="no CYRILLIC script is in use here"),)
    expanded = Expanded(Expansion("hot laptop", 100, (), (UNKNOWN, KEPT), phrases), GATHERED, "docs", "m", "store")
    assert expanded.explain() == (
        "hot [hot] (p 1.00): document frequency unknown: pinned (a person pinned it), boost 0.5",
        "fan [fan] (p 0.70, said as 'loud fan'): in about 4 of 100 documents, margin 2.05: kept, boost 0.21",
        "'перегрев' (p 0.90): script, no CYRILLIC script is in use here",
    )


def test_a_skip_is_told_and_does_not_count_as_a_problem() -> None:
    expanded = Expanded(Expansion('"x y"', None), GATHERED, "docs", skipped=Skip(Why.QUOTED, "it is in quotes"))
    assert expanded.why_not == "not expanded: it is in quotes"
    assert expanded.bare
    told = json.loads(json.dumps(expanded.to_json()))
    assert told["skipped"] == {"why": "quoted", "reason": "it is in quotes"}
    assert "problem" not in told
    assert told["from"] is None
