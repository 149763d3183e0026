"""Pins as rules that other tools read: synonym filters of Solr, Elasticsearch and OpenSearch, and Querqy."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from sira_es.expand.terms import Rule

__all__ = ["querqy_rules", "solr_synonyms"]


def solr_synonyms(rules: Sequence[Rule]) -> str:
    """One line a query, `query => query, word, ...`, for a `synonym_graph` filter used at search time.

    Such a filter knows no weights, and fires wherever the words of the query stand in a longer one. It makes a phrase of
    the query's own words unless the search says `auto_generate_synonyms_phrase_query: false`.
    """
    lines = [f"{_solr(query)} => {', '.join(map(_solr, [query, *words]))}" for query, words in _by_query(rules).items()]
    return "".join(f"{line}\n" for line in lines)


def querqy_rules(rules: Sequence[Rule]) -> str:
    """Common rules of Querqy: for exactly this query, each word as a synonym with its boost as weight."""
    blocks = [
        "\n".join(
            [f'"{_querqy(query)}" =>', *(f"  SYNONYM({boost:g}): {_querqy(word)}" for word, boost in words.items())]
        )
        for query, words in _by_query(rules).items()
        if _querqy(query)
    ]
    return "".join(f"{block}\n\n" for block in blocks).rstrip("\n") + ("\n" if blocks else "")


def _by_query(rules: Sequence[Rule]) -> Mapping[str, Mapping[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for rule in rules:
        if rule.kind == "pin" and rule.boost is not None:
            found.setdefault(rule.query, {})[rule.word] = rule.boost
    return found


def _solr(text: str) -> str:
    """Comma, arrow, backslash and a leading # have a meaning of their own."""
    escaped = re.sub(r"\\|,|=>", lambda m: f"\\{m[0]}", text)
    return f"\\{escaped}" if escaped.startswith("#") else escaped


def _querqy(text: str) -> str:
    """The words alone: quotes, arrows, brackets and a trailing * are syntax there, and nothing escapes them."""
    return " ".join(re.sub(r'["*#{}()\[\]:|\\]|=>', " ", text).split()).lstrip("-+@!")
