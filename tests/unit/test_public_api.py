"""What `from sira_es import ...` offers, and that importing it costs nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Any

import pytest

import sira_es
from sira_es import errors
from sira_es.errors import ConfigurationError, InputError
from sira_es.settings import IndexSettings, Settings, load_settings
from sira_es.sira import AsyncSira, Sira

HEAVY = ("litellm", "elasticsearch", "elastic_transport", "opensearchpy", "scipy", "pydantic", "yaml", "rich")


def test_the_public_names_are_sorted_and_complete() -> None:
    assert sira_es.__all__ == sorted(sira_es.__all__)
    assert set(sira_es.__all__) == {
        "AsyncSira",
        "Settings",
        "Sira",
        "__version__",
        "load_settings",
        *errors.__all__,
    }


def test_each_public_name_is_the_thing_itself() -> None:
    assert (sira_es.AsyncSira, sira_es.Sira) == (AsyncSira, Sira)
    assert (sira_es.Settings, sira_es.load_settings) == (Settings, load_settings)
    assert sira_es.__version__ == version("sira-es")
    assert all(getattr(sira_es, name) is getattr(errors, name) for name in errors.__all__)


def test_public_names_are_listed_and_others_are_errors() -> None:
    assert set(sira_es.__all__) <= set(dir(sira_es))
    with pytest.raises(AttributeError, match="module 'sira_es' has no attribute 'Nothing'"):
        sira_es.Nothing  # type: ignore[attr-defined]  # noqa: B018


def modules_after(statement: str) -> set[str]:
    code = f"import sys, json; {statement}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_import_loads_nothing_of_weight() -> None:
    assert modules_after("import sira_es").isdisjoint(HEAVY)


def test_the_facade_loads_neither_clients_nor_litellm_before_they_are_used() -> None:
    loaded = modules_after("from sira_es import AsyncSira, Sira, load_settings")
    assert loaded.isdisjoint({"litellm", "elasticsearch", "opensearchpy"})


def closed_sira() -> Sira:
    sira = Sira(Settings(indices={"docs": IndexSettings(text_fields=["text"])}))
    sira.close()
    return sira


def test_a_call_after_close_says_so() -> None:
    sira = closed_sira()
    calls: list[Callable[[], object]] = [
        lambda: sira.search("fan", "docs"),
        lambda: sira.rewrite({"query": {"match": {"text": "fan"}}}, "docs"),
        lambda: sira.doctor("docs"),
        lambda: sira.status("docs"),
    ]
    for call in calls:
        with pytest.raises(ConfigurationError, match="this Sira is closed"):
            call()
    sira.close()


@pytest.mark.anyio
async def test_an_asynchronous_call_after_close_says_so() -> None:
    sira = closed_sira().asynchronous
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: sira.search("fan", "docs"),
        lambda: sira.doctor("docs"),
        lambda: sira.enrich("docs"),
        lambda: sira.status("docs"),
    ]
    for call in calls:
        with pytest.raises(ConfigurationError, match="this Sira is closed"):
            await call()


def test_what_is_no_text_or_no_body_is_refused_in_one_line() -> None:
    with Sira(Settings(indices={"docs": IndexSettings(text_fields=["text"])})) as sira:
        nothing: Any = None
        for call, what in ((sira.search, "text"), (sira.expand, "text"), (sira.rewrite, "body")):
            with pytest.raises(InputError, match=f"^{what} must be a .*, not NoneType"):
                call(nothing, "docs")


@pytest.mark.parametrize("deadline", ["1s", -1, float("nan"), True])
def test_a_deadline_that_is_no_number_of_seconds_is_refused_in_one_line(deadline: Any) -> None:
    with (
        Sira(Settings(indices={"docs": IndexSettings(text_fields=["text"])})) as sira,
        pytest.raises(InputError, match=r"^deadline .* is not a number of seconds"),
    ):
        sira.expand("fan", "docs", deadline=deadline)
