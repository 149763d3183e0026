"""A first look at an index that nobody has configured yet: which fields hold prose, in which language."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sira_es.cluster.connect import Cluster, expected, segment
from sira_es.cluster.target import FieldInfo, text_fields_of
from sira_es.errors import UnsupportedError

__all__ = ["Look", "look_at"]

SAMPLE = 50
MOST_FIELDS = 4
LANGUAGES = {
    "english": "en", "german": "de", "french": "fr", "spanish": "es", "italian": "it", "portuguese": "pt", "dutch": "nl",
    "russian": "ru", "arabic": "ar", "kuromoji": "ja", "nori": "ko", "smartcn": "zh", "swedish": "sv", "danish": "da",
    "norwegian": "no", "finnish": "fi", "turkish": "tr",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Look:
    """Proposed text fields, the shortest texts first and the main text last, and up to `SAMPLE` sources."""

    fields: tuple[FieldInfo, ...]
    language: str
    sample: tuple[dict[str, Any], ...]


async def look_at(cluster: Cluster, name: str) -> Look:
    """Choose the text fields that hold prose. Raises UnsupportedError where there is no text field."""
    fields = await text_fields_of(cluster, name)
    if not fields:
        raise UnsupportedError(f"'{name}' has no text field; sira-es adds words beside text, so it needs one")
    body = {"size": SAMPLE, "_source": [f.name for f in fields]}
    answer = await cluster.request("POST", f"/{segment(name)}/_search", body=body)
    with expected(f"a sample of '{name}'"):
        sample = tuple(h["_source"] for h in answer["hits"]["hits"] if "_source" in h)
    words = {f.name: _words(sample, f.name) for f in fields}
    prose = [f for f in fields if words[f.name] >= 2] or fields
    chosen = sorted(sorted(prose, key=lambda f: -words[f.name])[:MOST_FIELDS], key=lambda f: words[f.name])
    return Look(tuple(chosen), LANGUAGES.get(chosen[-1].analyzer, ""), sample)


def _words(sample: tuple[dict[str, Any], ...], name: str) -> float:
    """Mean number of words in a field over the sample."""
    texts = [_value(source, name) for source in sample]
    return sum(len(t.split()) for t in texts) / len(texts) if texts else 0.0


def _value(source: Any, name: str) -> str:
    for key in [name] if isinstance(source, dict) and name in source else name.split("."):
        source = source.get(key) if isinstance(source, dict) else None
    if isinstance(source, list):
        return " ".join(s for s in source if isinstance(s, str))
    return source if isinstance(source, str) else ""
