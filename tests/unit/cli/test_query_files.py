"""The files of queries that commands take."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from sira_es.cli.warm import texts_of
from sira_es.errors import InputError


@pytest.mark.parametrize("name", ["head.txt", "head.txt.gz"])
def test_warm_takes_one_query_a_line_compressed_or_not(name: str, tmp_path: Path) -> None:
    content = "\ufeffvpn drops \r\n\nfan\u2028noise\n".encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert texts_of(tmp_path / name) == ["vpn drops", "fan\u2028noise"]


def test_warm_takes_queries_with_ids(tmp_path: Path) -> None:
    file = tmp_path / "queries.tsv"
    file.write_text("id\ttext\n1\tvpn drops\n2\tfan\n")
    assert texts_of(file) == ["vpn drops", "fan"]


def test_a_file_that_is_not_there_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"head\.txt: cannot be read: No such file"):
        texts_of(tmp_path / "head.txt")
