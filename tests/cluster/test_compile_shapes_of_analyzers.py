"""Words that an analyzer makes several tokens of: searched for as a whole, in every script, never as any fragment."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cluster.counting import create
from cluster.documents import fill
from cluster.searching import settings_for
from sira_es.cluster.connect import Cluster
from sira_es.sira import AsyncSira
from sira_es.vocabulary.model import Verdict
from tests.model_server import ModelServer

pytestmark = pytest.mark.anyio

ANALYSIS: Mapping[str, Any] = {
    "analyzer": {
        "same": {"tokenizer": "standard", "filter": ["lowercase", "synonyms"]},
        "delimited": {"tokenizer": "whitespace", "filter": ["parts", "flatten_graph", "lowercase"]},
        "compounds": {"tokenizer": "standard", "filter": ["lowercase", "decompound"]},
        "pairs": {"tokenizer": "standard", "filter": ["lowercase", "shingles"]},
        "beginnings": {"tokenizer": "standard", "filter": ["lowercase", "edges"]},
        "plain": {"tokenizer": "standard", "filter": ["lowercase"]},
    },
    "filter": {
        "synonyms": {"type": "synonym_graph", "synonyms": ["bant, kent", "notebook, portable computer"]},
        "parts": {"type": "word_delimiter_graph", "preserve_original": True, "catenate_all": True},
        "decompound": {"type": "dictionary_decompounder", "word_list": ["fussball", "tor"], "min_word_size": 4},
        "shingles": {"type": "shingle"},
        "edges": {"type": "edge_ngram", "min_gram": 2, "max_gram": 12},
    },
}
SAME = {"analyzer": "plain", "search_analyzer": "same"}
EDGES = {"analyzer": "beginnings", "search_analyzer": "plain"}


async def searched(
    cluster: Cluster,
    index: str,
    state: Path,
    *,
    fields: Mapping[str, Any],
    documents: Mapping[str, Any],
    says: str,
    query: str = "nowhere",
    language: str = "ja",
) -> tuple[set[str], dict[str, Verdict]]:
    """The documents found for a query where the model says one word, and the verdicts of the words."""
    main = list(fields.values())[-1]
    properties = {n: {"type": "text", **f} for n, f in {**fields, "enriched_terms": main}.items()}
    await create(cluster, index, properties=properties, settings={"analysis": ANALYSIS})
    await fill(cluster, index, {**documents, **{f"other{i}": dict.fromkeys(fields, "etwas") for i in range(5)}})
    of_index = {"text_fields": list(fields), "language": language}
    with ModelServer(default=json.dumps({"terms": [[says, 0.9]]})) as model:
        async with AsyncSira(settings_for(cluster.url, index, state, model, of_index=of_index)) as sira:
            result = await sira.search(query, index, deadline=math.inf)
    assert result.expansion is not None
    return {h.id for h in result.hits}, {t.word: t.verdict for t in result.expansion.terms}


def texts(*values: str) -> dict[str, dict[str, str]]:
    return {v: {"text": v} for v in values}


@pytest.mark.parametrize(
    ("field", "says", "found", "fragments"),
    [
        ({"analyzer": "cjk"}, "東京大学", ["東京大学の図書館"], ["東京", "大学", "京都大学"]),
        ({"analyzer": "cjk"}, "図書", ["図書館"], ["地図", "書店"]),
        ({"analyzer": "standard"}, "図書館", ["図書館"], ["図", "館", "館図書"]),
        ({"analyzer": "delimited"}, "Wi-Fi", ["Wi-Fi", "WiFi"], ["wi", "fi", "fi wi"]),
        ({"analyzer": "delimited"}, "PowerShot500", ["PowerShot500"], ["power", "shot", "500"]),
        ({"analyzer": "compounds"}, "Fussballtor", ["fussballtor", "tor im fussball"], ["tor", "fussball"]),
        (SAME, "bant", ["bant", "kent"], ["other"]),
        (SAME, "notebook", ["notebook", "portable computer"], ["portable", "computer", "computer portable"]),
        (EDGES, "fussball", ["fussball", "fussballtor"], ["fussel", "fu"]),
    ],
    ids=lambda v: v if isinstance(v, str) else None,
)
async def test_a_word_of_several_tokens_is_searched_for_as_a_whole(
    cluster: Cluster,
    index_name: str,
    tmp_path: Path,
    field: dict[str, str],
    says: str,
    found: list[str],
    fragments: list[str],
) -> None:
    """elastic/elasticsearch#46955, #109530, jprante/elasticsearch-analysis-decompound#11, haydenbleasel/blume#132:
    one common character or one part of a compound matched nearly everything. CherryHQ/cherry-studio#17511: two-character
    words were dropped.
    """
    hits, verdicts = await searched(
        cluster, index_name, tmp_path, fields={"text": field}, documents=texts(*found, *fragments), says=says
    )
    assert hits == set(found)
    assert Verdict.KEPT in verdicts.values()


@pytest.mark.parametrize(
    ("title", "says", "fragments"),
    [
        ({"analyzer": "standard"}, "wi-fi", ["wi", "fi"]),
        ({"analyzer": "cjk"}, "東京大学", ["東京", "大学"]),
        ({"analyzer": "delimited"}, "foo.bar", ["foo", "bar"]),
    ],
    ids=["standard", "cjk", "delimited"],
)
async def test_a_field_that_separates_more_than_the_main_one_does_not_match_fragments(
    cluster: Cluster, index_name: str, tmp_path: Path, title: dict[str, str], says: str, fragments: list[str]
) -> None:
    documents = {"whole": {"title": says, "text": "x"}, **{f: {"title": f, "text": "x"} for f in fragments}}
    hits, _ = await searched(
        cluster,
        index_name,
        tmp_path,
        fields={"title": title, "text": {"analyzer": "whitespace"}},
        documents={**documents, "main": {"title": "y", "text": says}},
        says=says,
    )
    assert hits == {"whole", "main"}


LANGUAGES = {
    "ja": ("cjk", "パソコンが熱い", ["過熱", "冷却ファン"]),
    "zh": ("cjk", "笔记本电脑发热", ["过热", "散热"]),
    "ko": ("cjk", "노트북 발열", ["과열", "냉각팬"]),
    "ru": ("russian", "ноутбук греется", ["перегрев", "охлаждение"]),
    "ar": ("arabic", "الحاسوب ساخن", ["سخونة", "تبريد"]),
    "de": ("german", "Laptop wird heiß", ["Überhitzung", "Lüfter"]),
}
FOREIGN = {"ja": "перегрев", "zh": "перегрев", "ko": "過熱", "ru": "過熱", "ar": "перегрев", "de": "過熱"}


@pytest.mark.parametrize("language", LANGUAGES)
async def test_words_in_the_script_of_the_query_are_kept_and_others_refused(
    cluster: Cluster, index_name: str, tmp_path: Path, language: str
) -> None:
    """tobi/qmd#454, #774, #920, onyx-dot-app/onyx#1548: queries were expanded in another language's script."""
    analyzer, query, said = LANGUAGES[language]
    await create(cluster, index_name, properties={"text": {"type": "text", "analyzer": analyzer}})
    await fill(
        cluster, index_name, {str(i): {"text": t} for i, t in enumerate([*said, *said, query, FOREIGN[language]])}
    )
    answer = json.dumps({"terms": [[w, 0.9] for w in [*said, FOREIGN[language]]]})
    of_index = {"text_fields": ["text"], "language": language}
    with ModelServer(default=answer) as model:
        async with AsyncSira(settings_for(cluster.url, index_name, tmp_path, model, of_index=of_index)) as sira:
            expanded = await sira.expand(query, index_name, deadline=math.inf)
    phrases = {p.phrase: p for p in expanded.expansion.phrases}
    assert all(phrases[w].verdict is Verdict.KEPT for w in said)
    assert phrases[FOREIGN[language]].verdict is Verdict.SCRIPT
    assert phrases[FOREIGN[language]].reason
