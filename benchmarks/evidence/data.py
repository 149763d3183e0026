"""What is measured: four public collections with judgments, and recorded answers of a large language model."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sira_es.evaluate import Documents, Judgments, Queries, read_documents, read_judgments, read_queries

__all__ = ["COLLECTIONS", "Collection", "Loaded", "load"]


@dataclass(frozen=True)
class Collection:
    """A public collection. `published` are BM25 figures (nDCG@10) that others measured on it, with what they used;
    `reference` is the prototype's: sides, before, after, gain."""

    name: str
    what: str
    description: str
    judgments: str
    source: str
    licence: str
    published: tuple[tuple[str, str], ...]
    reference: tuple[str, str, str, str]


BM25S = "bm25s"
COLLECTIONS = (
    Collection(
        "scifact",
        "claims and abstracts of biomedical papers (BEIR)",
        "abstracts of biomedical research papers, to be searched for evidence on a scientific claim",
        "qrels/test.tsv",
        "Wadden et al. 2020, as in BEIR (Thakur et al. 2021)",
        "CC BY 4.0, ODC-By 1.0",
        (("BEIR paper, Elasticsearch BM25 over title and text", ".665"), (BM25S, ".676 / .686")),
        ("queries only", ".678", ".789", "+16.4 %"),
    ),
    Collection(
        "cranfield",
        "questions and abstracts on aerodynamics (Cranfield 1400)",
        "abstracts of aerodynamics research papers of the 1940s to 1960s",
        "qrels/test.tsv",
        "Cleverdon 1967",
        "none stated",
        ((BM25S, ".485 / .519"),),
        ("both", ".486", ".656", "+35.1 %"),
    ),
    Collection(
        "stackfaq",
        "paraphrased questions and answers on web applications (StackFAQ 1.0)",
        "answers to frequent questions about web applications (Gmail, Facebook, Google Sheets, Trello and others)",
        "qrels/test.tsv",
        "Karan and Snajder 2018",
        "CC BY-SA",
        ((BM25S + ", all 1,249 queries", ".704 / .734"),),
        ("both", ".704", ".950", "+34.8 %"),
    ),
    Collection(
        "chorus-ecommerce",
        "short product queries and an electronics catalogue (Chorus, Icecat)",
        "products of an electronics web shop, short titles and descriptions",
        "qrels/test.tsv",
        "querqy/chorus, Broad Query Set",
        "Apache-2.0, Icecat Open Content",
        ((BM25S, ".631 / .627"),),
        ("queries only", ".660", ".668", "+1.2 %"),
    ),
)


@dataclass(frozen=True)
class Loaded:
    """A collection read from disk: the judged queries that have a recorded answer, and where the answers are."""

    collection: Collection
    documents: Documents
    queries: Queries
    judgments: Judgments
    query_answers: Path
    document_answers: Path | None


def load(collection: Collection, collections: Path, recordings: Path) -> Loaded:
    """Read one collection below `collections`, and its answers below `recordings`."""
    folder, answers = collections / collection.name, recordings / collection.name
    queries = read_queries(folder / "queries.jsonl.gz")
    answered = {str(row["id"]) for row in _lines(answers / "queries-test.jsonl")}
    texts = {query: text for query, text in queries.texts.items() if query in answered}
    judged = read_judgments(folder / collection.judgments)
    grades = {query: judged.grades[query] for query in texts if query in judged.grades}
    of_documents = answers / "documents.jsonl"
    return Loaded(
        collection,
        read_documents(folder / "corpus.jsonl.gz"),
        Queries(queries.path, {query: texts[query] for query in grades}),
        Judgments(judged.path, grades),
        answers / "queries-test.jsonl",
        of_documents if of_documents.exists() else None,
    )


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        yield from map(json.loads, file)
