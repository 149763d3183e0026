"""Judgments and runs become figures, tests of significance and a report; and the files that they are read from.

`read_queries` and `read_judgments` take files; `evaluate` asks every run's `search(query_id, text)` for each judged
query and returns an `Evaluation`, whose `to_json()` is what `sira-es eval --json` prints.
"""

from sira_es.evaluate.collections import Documents, Queries, read_documents, read_queries
from sira_es.evaluate.compare import Comparison, compare
from sira_es.evaluate.evaluation import Evaluation, QueryChange, assess, write_runs
from sira_es.evaluate.findings import Finding
from sira_es.evaluate.judgments import Judgments, read_judgments
from sira_es.evaluate.measures import DEFAULT_MEASURES, depth_of, parse_measures
from sira_es.evaluate.report import render_report
from sira_es.evaluate.run import Search, evaluate, select

__all__ = [
    "DEFAULT_MEASURES",
    "Comparison",
    "Documents",
    "Evaluation",
    "Finding",
    "Judgments",
    "Queries",
    "QueryChange",
    "Search",
    "assess",
    "compare",
    "depth_of",
    "evaluate",
    "parse_measures",
    "read_documents",
    "read_judgments",
    "read_queries",
    "render_report",
    "select",
    "write_runs",
]
