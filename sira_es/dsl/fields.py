"""What an index's mapping says of its fields, as far as queries over text need to know it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sira_es.dsl.compile import ENRICHED

__all__ = ["Fields", "fields_of"]

_TEXT = frozenset({"text", "match_only_text", "annotated_text"})
_GRAMS = frozenset({"ngram", "nGram", "edge_ngram", "edgeNGram"})
_SAYT = ("_2gram", "_3gram", "_index_prefix")


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of an index by full name.

    `text` are analysed into words; `prefix` into pieces of words or for search-as-you-type; `other` are all the rest
    that queries can name. `default` is `index.query.default_field`, patterns included.
    """

    text: frozenset[str]
    prefix: frozenset[str] = frozenset()
    other: frozenset[str] = frozenset()
    default: tuple[str, ...] = ("*",)

    @property
    def count(self) -> int:
        return len(self.text) + len(self.prefix) + len(self.other)

    def without(self, names: Iterable[str]) -> Fields:
        """The same where these names are not text: a request may map them anew for itself."""
        gone = frozenset(names)
        if not gone & (self.text | self.prefix):
            return self
        return Fields(self.text - gone, self.prefix - gone, self.other | gone, self.default)

    def common(self, other: Fields) -> Fields:
        """What both say of their fields, for a target of several indices: one that is text in one alone is not."""
        known = self.text | self.prefix | self.other | other.text | other.prefix | other.other
        text, prefix = self.text & other.text, self.prefix & other.prefix
        return Fields(text, prefix, known - text - prefix, self.default if self.default == other.default else ("*",))

    def resolve(self, patterns: Iterable[str]) -> dict[str, float]:
        """The existing fields, of every kind, that a list such as ["title^3", "text.*"] names, each with its weight.

        A weight that is no number makes no field; the highest counts where a field is named twice.
        """
        found: dict[str, float] = {}
        for pattern in patterns:
            name, caret, power = pattern.rpartition("^")
            try:
                weight = float(power) if caret else 1.0
            except ValueError:
                continue
            for field in self._matching(name if caret else pattern):
                found[field] = max(weight, found.get(field, weight))
        return found

    def _matching(self, pattern: str) -> list[str]:
        if "*" not in pattern:
            return [pattern] if pattern in self.text or pattern in self.prefix or pattern in self.other else []
        parts = pattern.split("*")
        return sorted(f for kind in (self.text, self.prefix, self.other) for f in kind if _has_parts(f, parts))


def fields_of(mapping: Mapping[str, Any], settings: Mapping[str, Any] | None = None) -> Fields:
    """Fields from an index's mapping (`{"properties": ...}`) and its settings (`{"index": ...}` or their inside).

    Aliases count as what they lead to. Objects below `nested` are left out: queries reach them through `nested` only.
    """
    inside = (settings or {}).get("index", settings or {})
    inside = inside if isinstance(inside, Mapping) else {}
    grams = _gram_analyzers(inside.get("analysis", {}))
    kinds: dict[str, str] = {}
    aliases: dict[str, str] = {}
    for name, spec in _leaves(mapping.get("properties", {}), ""):
        if spec.get("type") == "alias":
            aliases[name] = str(spec.get("path", ""))
            continue
        kinds[name] = _kind(spec, grams)
        if spec.get("type") == "search_as_you_type":
            kinds.update({f"{name}.{part}": "prefix" for part in _SAYT})
    kinds.update({name: kinds[path] for name, path in aliases.items() if path in kinds})
    query = inside.get("query", {})
    default = query.get("default_field", "*") if isinstance(query, Mapping) else "*"
    return Fields(
        frozenset(n for n, k in kinds.items() if k == "text"),
        frozenset(n for n, k in kinds.items() if k == "prefix"),
        frozenset(n for n, k in kinds.items() if k == "other"),
        (default,) if isinstance(default, str) else tuple(str(f) for f in default),
    )


def is_enriched(name: str) -> bool:
    """Whether a field is our own `enriched_terms` or below it."""
    return name == ENRICHED or name.startswith(f"{ENRICHED}.")


def _has_parts(name: str, parts: list[str]) -> bool:
    """Whether a name matches a pattern split at its stars. No regular expression: patterns are untrusted, and may be long."""
    first, *between, last = parts
    at, end = len(first), len(name) - len(last)
    if end < at or not name.startswith(first) or not name.endswith(last):
        return False
    for part in between:
        at = name.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True


def _leaves(properties: Any, prefix: str) -> Iterable[tuple[str, Mapping[str, Any]]]:
    if not isinstance(properties, Mapping):
        return
    for name, spec in properties.items():
        if not isinstance(spec, Mapping) or spec.get("type") == "nested":
            continue
        full = f"{prefix}{name}"
        if "properties" in spec:
            yield from _leaves(spec["properties"], f"{full}.")
        elif spec.get("type") not in (None, "object"):
            yield full, spec
            yield from _leaves(spec.get("fields"), f"{full}.")


def _kind(spec: Mapping[str, Any], grams: frozenset[str]) -> str:
    if spec.get("type") == "search_as_you_type" or str(spec.get("analyzer")) in grams:
        return "prefix"
    return "text" if str(spec.get("type")) in _TEXT and str(spec.get("index", True)).lower() != "false" else "other"


def _gram_analyzers(analysis: Any) -> frozenset[str]:
    """Names of the analyzers that cut words into pieces."""
    if not isinstance(analysis, Mapping):
        return frozenset()

    def cuts(part: str, name: Any) -> bool:
        if not isinstance(name, str):
            return False
        made = analysis.get(part, {})
        spec = made.get(name, {}) if isinstance(made, Mapping) else {}
        return name in _GRAMS or (isinstance(spec, Mapping) and str(spec.get("type")) in _GRAMS)

    found = set()
    for name, spec in _items(analysis.get("analyzer")):
        filters = spec.get("filter", [])
        filters = filters if isinstance(filters, list) else [filters]
        if cuts("tokenizer", spec.get("tokenizer")) or any(cuts("filter", f) for f in filters):
            found.add(name)
    return frozenset(found)


def _items(value: Any) -> list[tuple[str, Mapping[str, Any]]]:
    return [(k, v) for k, v in value.items() if isinstance(v, Mapping)] if isinstance(value, Mapping) else []
