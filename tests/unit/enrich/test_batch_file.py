"""The file of a batch on a disk that is full."""

from __future__ import annotations

import resource
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from sira_es.enrich.batches import _File
from sira_es.errors import ConfigurationError


@pytest.fixture
def full_disk() -> Iterator[None]:
    """No file may grow beyond a kilobyte."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("length", [2000, 50_000])
def test_a_file_that_cannot_be_written_is_named_and_removed(tmp_path: Path, full_disk: None, length: int) -> None:
    def write() -> None:
        file.add("k", b"x" * length, 0.0)
        file.close()

    file = _File(tmp_path)
    with pytest.raises(ConfigurationError, match=r"cannot write .*/batch-\w+\.jsonl: .* `state`"):
        write()
    file.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_its_owners_alone(tmp_path: Path) -> None:
    file = _File(tmp_path)
    assert stat.S_IMODE(next(tmp_path.iterdir()).stat().st_mode) == 0o600
    file.remove()
