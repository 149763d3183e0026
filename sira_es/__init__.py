"""Search vocabulary for an existing Elasticsearch or OpenSearch cluster, judged by the index's own document frequencies.

    from sira_es import Sira

    with Sira.from_config("sira-es.yml") as sira:
        hits = sira.search("why does my laptop overheat", index="docs").hits

`AsyncSira` has the same methods. All errors are `SiraError`s.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sira_es.errors import (
        ClusterError,
        ClusterRefused,
        ClusterUnreachable,
        ConfigurationError,
        InputError,
        ModelError,
        SiraError,
        SpendLimitReached,
        UnsupportedError,
    )
    from sira_es.settings import Settings, load_settings
    from sira_es.sira import AsyncSira, Sira

    __version__: str

__all__ = [
    "AsyncSira",
    "ClusterError",
    "ClusterRefused",
    "ClusterUnreachable",
    "ConfigurationError",
    "InputError",
    "ModelError",
    "Settings",
    "Sira",
    "SiraError",
    "SpendLimitReached",
    "UnsupportedError",
    "__version__",
    "load_settings",
]

_ELSEWHERE = {
    "AsyncSira": "sira_es.sira",
    "Sira": "sira_es.sira",
    "Settings": "sira_es.settings",
    "load_settings": "sira_es.settings",
}


if not TYPE_CHECKING:  # or every name would pass the type check

    def __getattr__(name: str) -> Any:
        """Import a public name when it is first used: the clients behind them take seconds to load."""
        if name not in __all__:
            raise AttributeError(f"module 'sira_es' has no attribute '{name}'")
        if name == "__version__":
            from importlib.metadata import version

            value: Any = version("sira-es")
        else:
            value = getattr(importlib.import_module(_ELSEWHERE.get(name, "sira_es.errors")), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
