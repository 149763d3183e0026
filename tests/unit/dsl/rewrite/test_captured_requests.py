"""What 28 clients and products really sent: what is rewritten, what passes, and that only our clauses are new."""

from __future__ import annotations

from collections import Counter

import pytest

from captured_requests import FOLDER, Capture, classified, fields_by_index, fields_for, table
from rewriting_examples import expansion_of, shaped, without_ours
from sira_es.dsl.locate import Located, Mode, Passed, locate
from sira_es.dsl.rewrite import rewrite

pytestmark = pytest.mark.skipif(not FOLDER, reason="SIRA_ES_CAPTURED names no folder of captured requests")


def rewritable(mode: Mode) -> list[tuple[Capture, Located]]:
    return [(c, w) for c, w in classified(mode) if isinstance(w, Located)]


def test_searches_that_their_engine_accepted_are_sorted_as_documented() -> None:
    outcomes = Counter(
        outcome.reason.value if isinstance(outcome, Passed) else "rewritten"
        for capture, outcome in classified()
        if capture.status == 200
    )
    assert outcomes == {
        "rewritten": 149,
        "not sorted by score": 25,
        "query syntax": 20,
        "no text": 19,
        "size 0": 15,
        "no query": 8,
        "query in the URL": 5,
        "short text": 5,
        "phrase": 4,
        "prefix": 2,
        "min_score": 2,
        "text in quotes": 2,
    }


@pytest.mark.parametrize("mode", ["rerank", "recall", "rescore"])
def test_taking_our_clauses_out_gives_back_what_the_client_sent(mode: Mode) -> None:
    for capture, where in rewritable(mode):
        after = rewrite(where, {t: expansion_of(t) for t in where.texts}, shaped("full", None))
        query = where.body[where.query.start : where.query.end]
        assert after.changed, capture
        assert without_ours(after.body.decode(), query).encode() == capture.body, capture


@pytest.mark.parametrize("mode", ["rerank", "recall", "rescore"])
def test_what_was_rewritten_is_not_rewritten_again(mode: Mode) -> None:
    fields = fields_by_index()
    for capture, where in rewritable(mode):
        after = rewrite(where, {t: expansion_of(t) for t in where.texts}, shaped("none", None))
        again = locate(after.body, fields_for(capture, fields), mode=mode, params=capture.params)
        assert isinstance(again, Passed), capture


@pytest.mark.parametrize(
    ("client", "file", "text", "fields", "factor"),
    [
        ("searchkit", "03", "wireless noise cancelling headphones", {"title": 6, "text": 1, "brand": 1}, 2),
        ("django-elasticsearch-dsl-drf", "03", "laptop bag", {"title": 1, "text": 1}, 5),
        ("django-haystack", "05", "laptop hard drive", {"text": 1}, 1),
        ("public-magento", "01", "yoga bag", {"sku": 1, "_search": 1, "name": 1}, 10),
        ("public-searchkick", "01", "milk chocolate", {"name.analyzed": 1, "description.analyzed": 1}, 50),
        ("public-elasticpress", "01", "garden furniture", {"post_title": 1, "post_excerpt": 1, "post_content": 1}, 2),
        ("reactivesearch", "07", "laser printer", {"title": 3, "text": 1}, 1),
        ("spring-data-elasticsearch", "23", "bluetoth speaker", {"title": 3, "text": 1}, 1),
        ("react-searchkit", "02", "laptop", {"title": 1, "text": 1, "brand": 1, "type": 1}, 1),
    ],
)
def test_text_fields_and_weight_of_known_clients(
    client: str, file: str, text: str, fields: dict[str, float], factor: float
) -> None:
    where = next(w for c, w in rewritable("rerank") if c.client == client and c.file.startswith(file))
    (group,) = where.groups
    assert (group.text, dict(group.fields), group.factor) == (text, fields, factor)


def test_the_table_for_the_documentation_has_a_row_a_client() -> None:
    assert len(table().splitlines()) == 2 + len({c.client for c, _ in classified()})
