"""The commands around queries: warm, terms, expand, and search with an explanation."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from end_to_end.conftest import FAQ, Result

Cli = Callable[..., Result]
Config = Callable[..., Path]

QUERY_ANSWERS = FAQ / "recorded" / "queries.jsonl.gz"
QUERY = "how do I cross out words in a comment"


@pytest.fixture
def config(write_config: Config, faq_index: str) -> tuple[str, str, Path]:
    return "--index", faq_index, write_config(faq_index)


def test_warm_keeps_recorded_answers_for_commands_without_a_file(cli: Cli, config: Any) -> None:
    index, name, file = config
    arguments = (index, name, "-c", file)
    warmed = cli("warm", *arguments, "--queries", FAQ / "queries.jsonl.gz", "--recorded", QUERY_ANSWERS, "--json", "-q")
    assert warmed.code == 0
    assert warmed.json["new"] + sum(warmed.json["skipped"].values()) + warmed.json["known"] == 300
    assert cli("warm", *arguments, "--queries", FAQ / "queries.jsonl.gz", "--recorded", QUERY_ANSWERS).code == 0
    text = next(iter(_queries()))
    expanded = cli("expand", text, *arguments, "--json").json
    assert expanded["from"] == "store"
    assert expanded["terms"]


def _queries() -> list[str]:
    from sira_es.evaluate import read_queries

    return list(read_queries(FAQ / "queries.jsonl.gz").texts.values())


def test_warm_takes_a_list_of_texts_and_says_what_failed(cli: Cli, config: Any, tmp_path: Path) -> None:
    index, name, file = config
    head = tmp_path / "head.txt"
    head.write_text(f"{_queries()[0]}\nnobody recorded this\n\n")
    warmed = cli("warm", index, name, "-c", file, "--queries", head, "--recorded", QUERY_ANSWERS)
    assert warmed.code == 3
    assert "1 answers are new" in warmed.out
    assert "1 failed (not recorded)" in warmed.out
    assert "no answer for query" in warmed.err


def test_a_blocked_word_is_gone_from_the_next_expansion(cli: Cli, config: Any) -> None:
    index, name, file = config
    arguments = (index, name, "-c", file, "--recorded", QUERY_ANSWERS)
    text = _queries()[0]
    word = next(t["word"] for t in cli("expand", text, *arguments, "--json").json["terms"] if t["verdict"] == "kept")
    assert cli("terms", "block", word, index, name, "-c", file).code == 0
    terms = {t["word"]: t["verdict"] for t in cli("expand", text, *arguments, "--json").json["terms"]}
    assert terms[word] == "blocked"
    assert word in cli("terms", "list", index, name, "-c", file).out
    assert cli("terms", "block", word, "--remove", index, name, "-c", file).err.strip() == "1 taken back"


def test_pins_are_exported_in_both_forms(cli: Cli, config: Any) -> None:
    index, name, file = config
    cli("terms", "pin", "tildes", "--query", "cross out", "--boost", "0.3", index, name, "-c", file)
    assert cli("terms", "export", index, name, "-c", file).out == "cross out => cross out, tildes\n"
    querqy = cli("terms", "export", "--format", "querqy", index, name, "-c", file).out
    assert querqy == '"cross out" =>\n  SYNONYM(0.3): tildes\n'


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("pin", "x", "--query", "q", "--boost", "0"), "boost 0.0 is not a number above 0"),
        (("block", "..."), "holds no letter and no digit"),
        (("pin", "x"), "Missing option '--query'"),
    ],
)
def test_wrong_use_of_terms_is_told_in_one_line(cli: Cli, config: Any, arguments: Any, message: str) -> None:
    index, name, file = config
    result = cli("terms", *arguments, index, name, "-c", file)
    assert result.code == 2
    assert message in result.err
    assert len(result.err.strip().splitlines()) == 1


def test_terms_of_an_index_that_is_not_configured_are_refused(cli: Cli, config: Any) -> None:
    result = cli("terms", "block", "x", "--index", "other", "-c", config[2])
    assert result.code == 2
    assert "no index 'other'" in result.err


def test_a_skipped_query_is_told_with_its_reason_and_is_no_failure(cli: Cli, config: Any) -> None:
    index, name, file = config
    result = cli("expand", "CVE-2021-44228", index, name, "-c", file, "--recorded", QUERY_ANSWERS, "--json")
    assert result.code == 0
    assert result.json["skipped"] == {"why": "identifier", "reason": "it is looked up as it stands: a code"}
    assert "not expanded: it is looked up as it stands" in result.err


def test_search_says_what_keeps_a_document_from_the_top(cli: Cli, config: Any) -> None:
    index, name, file = config
    arguments = (index, name, "-c", file, "--recorded", QUERY_ANSWERS, "--size", "3")
    text = _queries()[0]
    all_hits = json.loads(cli("search", text, *arguments[:-1], "50", "--json").out)["hits"]
    missed = all_hits[20]["_id"]
    told = cli("search", text, *arguments, "--why-not", missed, "--json").json["why_not"]
    assert told["rank"] == 21
    assert told["score"] < told["last"]
    assert f"{missed}: it is hit 21" in cli("search", text, *arguments, "--why-not", missed).out
