"""The file of human terms: what goes in, what is refused, what other processes see, and what is exported."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from sira_es.errors import ConfigurationError, InputError
from sira_es.expand import Rule, TermStore, querqy_rules, solr_synonyms
from sira_es.vocabulary import HumanTerms


@pytest.fixture
def store(tmp_path: Path) -> TermStore:
    return TermStore(tmp_path / "state" / "terms.sqlite")


def test_rules_become_what_the_method_takes(store: TermStore) -> None:
    store.add("docs", "block", ["Casino", "free  spins"])
    store.add("docs", "allow", ["WLAN"])
    store.add("docs", "pin", ["NaCl"], query="Table  Salt", boost=0.4)
    assert store.human("docs") == HumanTerms(
        block=frozenset({"casino", "free spins"}),
        allow=frozenset({"wlan"}),
        pins={"table salt": (("NaCl", 0.4),)},
    )
    assert store.human("docs").pins_of("TABLE salt") == (("NaCl", 0.4),)
    assert store.human("other") == HumanTerms()


def test_nothing_is_made_by_reading(store: TermStore) -> None:
    assert store.human("docs") == HumanTerms()
    assert store.rules("docs") == []
    assert store.remove("docs", "block", ["x"]) == 0
    assert not store.path.parent.exists()


def test_allowing_a_blocked_word_takes_the_block_away_and_back(store: TermStore) -> None:
    store.add("docs", "block", ["casino"])
    store.add("docs", "allow", ["Casino"])
    assert store.rules("docs") == [Rule("allow", "Casino")]
    store.add("docs", "block", ["casino"])
    assert store.rules("docs") == [Rule("block", "casino")]


def test_a_pin_given_again_has_the_new_boost(store: TermStore) -> None:
    store.add("docs", "pin", ["fan"], query="hot", boost=0.4)
    store.add("docs", "pin", ["Fan"], query="HOT", boost=0.6)
    assert store.rules("docs") == [Rule("pin", "Fan", "hot", 0.6)]


def test_rules_are_taken_back_whatever_their_case(store: TermStore) -> None:
    store.add("docs", "block", ["Casino"])
    store.add("docs", "pin", ["fan"], query="hot", boost=0.4)
    assert store.remove("docs", "block", ["CASINO", "unknown"]) == 1
    assert store.remove("docs", "pin", ["fan"], query="cold") == 0
    assert store.remove("docs", "pin", ["fan"], query="Hot") == 1
    assert store.rules("docs") == []


@pytest.mark.parametrize("boost", [None, 0, -1, float("nan"), float("inf")])
def test_a_boost_is_a_number_above_0(store: TermStore, boost: float | None) -> None:
    with pytest.raises(InputError, match="boost"):
        store.add("docs", "pin", ["fan"], query="hot", boost=boost)


@pytest.mark.parametrize("word", ["", " ", "...", "\x00"])
def test_a_word_holds_a_letter_or_a_digit(store: TermStore, word: str) -> None:
    with pytest.raises(InputError, match="no letter"):
        store.add("docs", "block", ["good", word])
    assert store.rules("docs") == []


def test_the_same_object_is_given_until_something_changes(store: TermStore) -> None:
    store.add("docs", "block", ["casino"])
    first = store.human("docs")
    assert store.human("docs") is first
    store.add("docs", "block", ["bingo"])
    assert store.human("docs") is not first


def test_a_change_of_another_process_is_seen(store: TermStore) -> None:
    store.add("docs", "block", ["casino"])
    assert "bingo" not in store.human("docs").block
    program = "import sys; from sira_es.expand import TermStore; TermStore(sys.argv[1]).add('docs', 'block', ['bingo'])"
    subprocess.run([sys.executable, "-c", program, str(store.path)], check=True)
    assert "bingo" in store.human("docs").block


def test_a_file_that_another_process_makes_is_seen(store: TermStore) -> None:
    assert store.human("docs") == HumanTerms()
    TermStore(store.path).add("docs", "block", ["casino"])
    assert "casino" in store.human("docs").block


@pytest.mark.parametrize("content", [b"no database at all, but long enough to be taken for one " * 50, None])
def test_a_file_that_cannot_be_used_is_told_in_one_line(store: TermStore, content: bytes | None) -> None:
    store.path.parent.mkdir(parents=True)
    if content is None:
        with sqlite3.connect(store.path) as newer:
            newer.execute("PRAGMA user_version = 99")
        newer.close()
    else:
        store.path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"cannot use the terms in .*terms.sqlite: .*move the file away"):
        store.human("docs")


PINS = [
    Rule("block", "casino"),
    Rule("pin", "thermal throttling", "laptop hot", 0.4),
    Rule("pin", "fan", "laptop hot", 0.25),
    Rule("pin", 'c#, "f#"', "#languages, a=>b", 1.0),
]


def test_pins_as_solr_synonyms() -> None:
    assert solr_synonyms(PINS).splitlines() == [
        "laptop hot => laptop hot, thermal throttling, fan",
        '\\#languages\\, a\\=>b => \\#languages\\, a\\=>b, c#\\, "f#"',
    ]


def test_pins_as_rules_of_querqy() -> None:
    assert querqy_rules(PINS) == (
        '"laptop hot" =>\n  SYNONYM(0.4): thermal throttling\n  SYNONYM(0.25): fan\n\n'
        '"languages, a b" =>\n  SYNONYM(1): c , f\n'
    )
    assert querqy_rules([]) == solr_synonyms([]) == ""
