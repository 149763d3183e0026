"""The collection that comes along is whole: what the demo is to run on matches in every part."""

from __future__ import annotations

from pathlib import Path

import pytest

from sira_es.evaluate import read_documents, read_judgments, read_queries, select
from sira_es.settings import load_settings

EXAMPLES = Path(__file__).parents[3] / "examples"
FAQ = EXAMPLES / "stackfaq"


def test_every_query_is_judged_and_every_judged_document_is_there() -> None:
    documents = read_documents(FAQ / "corpus.jsonl.gz")
    queries, judgments = read_queries(FAQ / "queries.jsonl.gz"), read_judgments(FAQ / "qrels.tsv")
    texts, grades, findings = select(queries, judgments, known_documents={name for name, _ in documents})
    assert (documents.count, len(texts), sum(map(len, grades.values()))) == (719, 300, 1740)
    assert documents.findings == findings == ()


@pytest.mark.parametrize(("recorded", "asked"), [("documents", "corpus"), ("queries", "queries")])
def test_an_answer_is_recorded_for_each_document_and_query(recorded: str, asked: str) -> None:
    answers = dict(read_documents(FAQ / "recorded" / f"{recorded}.jsonl.gz"))
    assert set(answers) == {name for name, _ in read_documents(FAQ / f"{asked}.jsonl.gz")}
    assert all(answer["answer"] for answer in answers.values())


def test_the_example_configuration_is_valid_and_names_fields_of_the_collection() -> None:
    index = load_settings(EXAMPLES / "sira-es.yml").index("faq")
    fields = [name for name, _ in index.fields]
    assert all(
        isinstance(source[name], str) for _, source in read_documents(FAQ / "corpus.jsonl.gz") for name in fields
    )
    assert index.language == "en"
