"""For tests of searches as a program makes them: the facade over a node, a model server and a state folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sira_es.settings import Settings
from tests.model_server import ModelServer

ENGLISH = {"type": "text", "analyzer": "english"}
SIRA = {"properties": {"source_hash": {"type": "keyword"}, "recipe": {"type": "keyword"}}}
ENRICHED = {"title": ENGLISH, "text": ENGLISH, "enriched_terms": ENGLISH, "sira": SIRA}
DOCUMENTS = [
    {
        "title": "Hot laptop",
        "text": "What to do where a laptop gets hot",
        "enriched_terms": ["overheating", "temperature"],
    },
    {"title": "Fan noise", "text": "The fan of the notebook is loud", "enriched_terms": ["cooler", "laptop"]},
    {"title": "VPN drops", "text": "The connection is lost every hour", "enriched_terms": ["tunnel"]},
    {"title": "Throttling", "text": "Thermal throttling slows a notebook down", "enriched_terms": ["slow computer"]},
    {"title": "WH-1000XM4", "text": "Headphones with noise cancelling", "enriched_terms": ["headset"]},
    {"title": "WH-1000XM5", "text": "Newer headphones with noise cancelling", "enriched_terms": ["headset"]},
]
for _document in DOCUMENTS:
    _document["sira"] = {"source_hash": "x"}  # type: ignore[assignment]
ANSWER = json.dumps(
    {
        "concepts": [{"words": "laptop", "need": 0.9, "same": [["notebook", 0.8]]}],
        "also": [["thermal throttling", 0.7], ["fan", 0.6], ["unheard", 0.9]],
    }
)
QUERY = "why does my laptop get hot"


def settings_for(
    url: str,
    index: str,
    state: Path,
    model: ModelServer | None = None,
    *,
    of_index: dict[str, Any] | None = None,
    **llm: Any,
) -> Settings:
    """Settings for one index with `title` and `text`; `llm` are keys of `llm.queries`."""
    stage = {"model": "openai/small", "api_base": model.api_base, "api_key": "none", **llm} if model else llm
    return Settings(
        cluster={"url": [url]},  # type: ignore[arg-type]
        llm={"queries": stage},  # type: ignore[arg-type]
        state=state,
        indices={index: {"text_fields": ["title", "text"], "language": "en", **(of_index or {})}},  # type: ignore[dict-item]
    )
