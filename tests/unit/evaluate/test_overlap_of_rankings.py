"""How far two rankings are apart where nobody judged: overlap, changed tops, queries that found nothing before."""

from __future__ import annotations

import pytest

from sira_es.evaluate.overlap import by_query, overlap
from sira_es.rankings import jaccard, rbo


def test_equal_rankings_overlap_fully_and_disjoint_ones_not_at_all() -> None:
    assert rbo("abcdef", "abcdef") == pytest.approx(1.0)
    assert rbo("abc", "xyz") == 0.0
    assert jaccard("abc", "cab") == 1.0
    assert jaccard("abc", "xyz") == 0.0


def test_rbo_of_two_rankings_worked_out_by_hand() -> None:
    agreement = [0 / 1, 2 / 2, 3 / 3]
    expected = 0.1 / 0.9 * sum(a * 0.9**d for d, a in enumerate(agreement, 1)) + 0.9**3
    assert rbo("abc", "bac") == pytest.approx(expected)


def test_rbo_of_uneven_rankings_takes_what_is_unseen_to_agree_as_what_is_seen() -> None:
    # depth 1: agree 1/1; the shorter one ends; depth 2 seen 1/2, assumed 1 * (2 - 1) / (1 * 2) more
    expected = 0.1 / 0.9 * (1 * 0.9 + 0.5 * 0.81 + 0.5 * 0.81) + (0 / 2 + 1 / 1) * 0.81
    assert rbo("a", "ab") == pytest.approx(expected)
    assert rbo("a", "ab") == rbo("ab", "a")


def test_a_change_at_the_top_weighs_more_than_one_below() -> None:
    assert rbo("abcdefghij", "bacdefghij") < rbo("abcdefghij", "abcdefghji")


def test_two_empty_rankings_are_equal_and_an_empty_one_shares_nothing() -> None:
    assert rbo("", "") == jaccard("", "") == 1.0
    assert rbo("", "a") == jaccard("", "a") == 0.0


def test_figures_count_changed_tops_and_rescued_queries() -> None:
    before = {"same": ["a", "b", "c", "d"], "order": ["a", "b", "c"], "new": ["a", "b", "c"], "none": [], "never": []}
    after = {"same": ["a", "b", "c", "x"], "order": ["b", "a", "c"], "new": ["a", "b", "x"], "none": ["z"], "never": []}
    found = overlap(before, after)
    figures = found.to_json()
    assert figures["changed_top_3"] == pytest.approx(3 / 5)
    assert figures["new_in_top_3"] == pytest.approx(2 / 5)
    assert (figures["zero_results_before"], figures["zero_results_after"], figures["rescued"]) == (2, 1, 1)
    assert figures["Jaccard@10"] == pytest.approx((3 / 5 + 1 + 2 / 4 + 0 + 1) / 5)
    listed = by_query(found, {query: query.upper() for query in before})
    assert listed[0] == {"query": "none", "text": "NONE", "RBO@10": 0.0, "before": [], "after": ["z"]}
