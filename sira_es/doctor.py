"""What must hold of the model side: configured, priced, and, when it may be called, reachable, keyed, quick, to the point."""

from __future__ import annotations

import time
from typing import Literal

from sira_es.cluster.checks import Check, problem_of
from sira_es.errors import ModelError, SiraError
from sira_es.llm.answer import is_usable
from sira_es.llm.model import Model
from sira_es.llm.prompts import document_prompt, query_prompt
from sira_es.settings import LlmStage

__all__ = ["check_model"]


async def check_model(side: Literal["queries", "documents"], stage: LlmStage, live: bool) -> list[Check]:
    """One line for what is configured, and with `live` one for what a single call shows."""
    name, place = f"llm {side}", f"llm.{side}"
    if stage.model is None:
        return [Check(name, "warning", "no model is configured", f"set {place}.model, or use recorded answers")]
    try:
        model = Model(stage)
        priced = model.price(1000, 100) is not None
    except SiraError as error:
        return [problem_of(name, error, f"correct {place}")]
    if priced:
        configured = Check(name, "ok", f"{stage.model}, its price is known")
    else:
        remedy = "use --max-docs instead" if side == "documents" else f"set {place}.rpm to bound it"
        configured = Check(name, "warning", f"{stage.model}: no price is known, so costs cannot be capped", remedy)
    return [configured, await _called(model, side, stage)] if live else [configured]


async def _called(model: Model, side: Literal["queries", "documents"], stage: LlmStage) -> Check:
    name, place = f"llm {side} live", f"llm.{side}"
    if side == "queries":
        prompt = query_prompt("", "printer does not print", "office equipment", "en")
    else:
        text = {"text": ("The printer does not print when the cable is loose.",)}
        prompt = document_prompt("", text, "office equipment")
    started = time.monotonic()
    try:
        answer = await model.ask(prompt)
    except ModelError as error:
        return problem_of(name, error, f"correct {place}")
    finally:
        await model.close()
    seconds = time.monotonic() - started
    if not is_usable(answer.text, prompt.kind):
        detail = f"{stage.model} answers, but not with the JSON that was asked for"
        return Check(name, "problem", detail, "choose a model that keeps to a format")
    took = f"{stage.model} answered in {seconds:.1f} s"
    if side == "queries" and seconds > stage.deadline:
        detail = f"{took}, later than the deadline of {stage.deadline:g} s: serving would use stored answers only"
        return Check(name, "warning", detail, f"warm the store, raise {place}.deadline, or choose a quicker model")
    return Check(name, "ok", f"{took}, in the form that was asked for")
