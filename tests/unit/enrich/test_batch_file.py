"""The file of a batch: on a disk that is full, and among other users."""

from __future__ import annotations

import secrets
import stat
from pathlib import Path

import pytest

from sira_es.enrich.batches import _File
from sira_es.errors import ConfigurationError

FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("length", [2000, 50_000])
def test_a_file_that_cannot_be_written_is_named_and_removed(
    tmp_path: Path, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "token_hex", lambda _: "token")
    (tmp_path / "batch-token.jsonl").symlink_to(FULL)

    def write() -> None:
        file.add("k", b"x" * length, 0.0)
        file.close()

    file = _File(tmp_path)
    with pytest.raises(ConfigurationError, match=r"cannot write .*/batch-token\.jsonl: .* `state`"):
        write()
    file.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_its_owners_alone(tmp_path: Path) -> None:
    file = _File(tmp_path)
    assert stat.S_IMODE(next(tmp_path.iterdir()).stat().st_mode) == 0o600
    file.remove()
