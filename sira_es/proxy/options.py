"""What the command line says of how to serve, beside the configuration."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from sira_es.settings import IndexSettings

__all__ = ["Asked", "Online", "Options", "share_of"]

Asked = Literal["off", "rerank", "recall", "rescore", "rescue"]
Online = Literal["never", "deadline"]
ASKED = frozenset(get_args(Asked))


@dataclass(frozen=True, slots=True)
class Options:
    """`mode` and `online` None: as configured for each index. `shadow` and `sample` are shares from 0 to 1.

    `shadow` above 0: everybody gets the plain search but those in the `sample`. `sample` None: all, or nobody beside a
    shadow. `recorded`: a file of recorded query answers, asked in place of a model.
    """

    mode: Asked | None = None
    online: Online | None = None
    shadow: float = 0.0
    sample: float | None = None
    recorded: Path | None = None

    def mode_of(self, index: IndexSettings) -> Asked:
        return self.mode or index.proxy.mode

    def online_of(self, index: IndexSettings) -> Online:
        return self.online or index.proxy.online

    def serves(self, key: str) -> bool:
        """Whether the user with this key gets better searches; the same in every process and after every start."""
        share = self.sample if self.sample is not None else (0.0 if self.shadow else 1.0)
        return share >= 1 or share_of(key) < share


def share_of(key: str) -> float:
    """Where a key stands between 0 and 1."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big") / 2**64
