"""The method: what a model said, what the index knows, and what counts. Pure functions of their arguments."""

from __future__ import annotations

from sira_es.vocabulary.clean import clean_document, clean_query, normalise
from sira_es.vocabulary.judge import HumanTerms, Rules, judge_document, judge_query
from sira_es.vocabulary.model import Analysis, Expansion, Phrase, Proposal, Statistics, Term, Verdict, Word
from sira_es.vocabulary.weigh import expand

__all__ = [
    "Analysis",
    "Expansion",
    "HumanTerms",
    "Phrase",
    "Proposal",
    "Rules",
    "Statistics",
    "Term",
    "Verdict",
    "Word",
    "clean_document",
    "clean_query",
    "expand",
    "judge_document",
    "judge_query",
    "normalise",
]
