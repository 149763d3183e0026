"""A first look at an index that nobody has configured yet: which fields hold prose, in which language."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sira_es.cluster.connect import Cluster, expected, segment
from sira_es.cluster.target import FieldInfo, multi_fields, text_fields_of
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
    """Proposed text fields, the shortest texts first and the main text last, and up to `SAMPLE` sources.

    `left_out`: names of the other text fields, without the multi-fields of a text field, which hold the same text.
    `nested`: there is text in nested objects alone; these fields can be read, not searched, the main text comes first.
    """

    fields: tuple[FieldInfo, ...]
    language: str
    sample: tuple[dict[str, Any], ...]
    nested: bool = False
    left_out: tuple[str, ...] = ()


async def look_at(cluster: Cluster, name: str) -> Look:
    """Choose the text fields that hold prose. Raises UnsupportedError where there is no text field."""
    searched = await text_fields_of(cluster, name)
    fields = searched or await text_fields_of(cluster, name, nested=True)
    if not fields:
        raise UnsupportedError(f"'{name}' has no text field; sira-es adds words beside text, so it needs one")
    names = {f.name for f in fields}
    fields = tuple(f for f in fields if f.name.rpartition(".")[0] not in names)
    mappings = await cluster.request("GET", f"/{segment(name)}/_mapping")
    with expected(f"the mapping of '{name}'"):
        multi = {n for index in mappings.values() for n in multi_fields(index["mappings"])}
    held = {f.name: f.name.rpartition(".")[0] if f.name in multi else f.name for f in fields}
    body = {"size": SAMPLE, "_source": list(held.values())}
    answer = await cluster.request("POST", f"/{segment(name)}/_search", body=body)
    with expected(f"a sample of '{name}'"):
        sample = tuple(h["_source"] for h in answer["hits"]["hits"] if "_source" in h)
    words = {f.name: _words(sample, held[f.name]) for f in fields}
    prose = [f for f in fields if words[f.name] >= 2] or fields
    chosen = sorted(sorted(prose, key=lambda f: -words[f.name])[:MOST_FIELDS], key=lambda f: words[f.name])
    language = LANGUAGES.get(chosen[-1].analyzer, "")
    left_out = tuple(f.name for f in fields if f not in chosen)
    return Look(tuple(chosen if searched else reversed(chosen)), language, sample, not searched, left_out)


def _words(sample: tuple[dict[str, Any], ...], name: str) -> float:
    """Mean number of words in a field over the sample."""
    texts = [_value(source, name.split(".")) for source in sample]
    return sum(len(t.split()) for t in texts) / len(texts) if texts else 0.0


def _value(source: Any, path: Sequence[str]) -> str:
    if isinstance(source, list):
        return " ".join(_value(item, path) for item in source)
    if not path or not isinstance(source, dict):
        return source if isinstance(source, str) and not path else ""
    name = ".".join(path)
    return _value(source[name], ()) if name in source else _value(source.get(path[0]), path[1:])
