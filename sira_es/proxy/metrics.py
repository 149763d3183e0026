"""Figures for Prometheus. Labels hold names of ours only: no index, no text, no credential."""

from __future__ import annotations

import os

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, multiprocess
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from sira_es.llm.model import Answer
from sira_es.proxy.outcome import Outcome

__all__ = ["CONTENT_TYPE_LATEST", "Metrics", "forget"]

_FILES = "PROMETHEUS_MULTIPROC_DIR"

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


class Metrics:
    """One set for the life of a process; with several workers they are added up over files."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self.requests = Counter("sira_requests", "Requests", ["kind", "status"], registry=registry)
        self._searches = Counter("sira_searches", "Searches by outcome", ["outcome", "reason"], registry=registry)
        self._stages = Histogram(
            "sira_stage_seconds", "Parts of serving a search", ["stage"], buckets=_SECONDS, registry=registry
        )
        self.in_flight = Gauge("sira_in_flight", "Requests under way", registry=registry, multiprocess_mode="livesum")
        self.memory = Counter("sira_expansions", "Texts looked for in what was served", ["result"], registry=registry)
        self._model = Counter("sira_model_answers", "Answers and failures of the model", ["result"], registry=registry)
        self.tokens = Counter("sira_model_tokens", "Tokens paid for", ["direction"], registry=registry)
        self.cost = Counter("sira_model_cost_dollars", "Cost of model calls", registry=registry)
        self.breaker = Gauge(
            "sira_model_resting",
            "1 while a failing model is left alone",
            registry=registry,
            multiprocess_mode="livemax",
        )
        self.refused = Counter("sira_rewrites_refused", "Rewritten bodies the cluster refused", registry=registry)
        self.node = Gauge(
            "sira_upstream_up",
            "1 where a node answers",
            ["node"],
            registry=registry,
            multiprocess_mode="livemostrecent",
        )
        self.reloads = Counter("sira_reloads", "Reloads of the configuration", ["result"], registry=registry)
        self.shadowed = Counter("sira_shadow_searches", "Searches compared unseen", ["result"], registry=registry)
        self.rbo = Histogram("sira_shadow_rbo", "RBO@10", buckets=_SHARES, registry=registry)
        self.jaccard = Histogram("sira_shadow_jaccard", "Jaccard@10", buckets=_SHARES, registry=registry)
        self.shadow_seconds = Histogram(
            "sira_shadow_seconds", "Time of both searches", ["search"], buckets=_SECONDS, registry=registry
        )

    def outcome(self, outcome: Outcome) -> None:
        self._searches.labels(outcome.state, outcome.reason).inc()

    def stages(self, seconds: dict[str, float]) -> None:
        for stage, value in seconds.items():
            self._stages.labels(stage).observe(value)

    def asked(self, answer: Answer) -> None:
        """The model answered."""
        self._model.labels("answer").inc()
        self.tokens.labels("prompt").inc(answer.prompt_tokens)
        self.tokens.labels("completion").inc(answer.completion_tokens)
        self.cost.inc(answer.cost or 0.0)
        self.breaker.set(0)

    def asked_in_vain(self, reason: str) -> None:
        self._model.labels(reason).inc()
        self.breaker.set(float(reason == "resting"))

    def page(self) -> bytes:
        """All figures as Prometheus reads them."""
        if _FILES not in os.environ:
            return generate_latest(self._registry)
        all_workers = CollectorRegistry()
        multiprocess.MultiProcessCollector(all_workers)  # type: ignore[no-untyped-call]
        return generate_latest(all_workers)


def forget(process: int) -> None:
    """Count what a process has done that has ended, but not what it was doing."""
    if _FILES in os.environ:
        multiprocess.mark_process_dead(process)  # type: ignore[no-untyped-call]
