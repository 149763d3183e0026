"""Judged words get their boosts under the expansion budget: ten guesses must not drown a one-word query.

s = min(1, budget * k/(k + knee) * sum_q idf(q) / sum_t p(t) idf(t))       q: own words, t: kept words
boost(t) = p(t) * s                                                        boost(q) = lift * p(q) * s
"""

from __future__ import annotations

from collections.abc import Sequence

from sira_es.vocabulary.judge import HumanTerms, Rules, idf, judge_query, share
from sira_es.vocabulary.model import Expansion, Phrase, Statistics, Word, boosted

__all__ = ["expand"]

_TELLING_DF = 0.5  # own words in more documents than this share do not make a query longer


def expand(
    text: str, phrases: Sequence[Phrase], statistics: Statistics, *, rules: Rules, human: HumanTerms
) -> Expansion:
    """Judge and weigh what was proposed for a query.

    `phrases` come from `clean_query`; `statistics` holds the query first, then the phrases without a verdict in their
    order, then the pinned words. Raises ValueError where the analyses do not fit the phrases.
    """
    own, terms, judged = judge_query(phrases, statistics, rules=rules, human=human)
    allowance = _allowance(own, statistics.documents, rules)
    weighed, scale = boosted(terms, allowance, rules.lift)
    return Expansion(
        text=text,
        documents=statistics.documents,
        own=own,
        terms=weighed,
        phrases=judged,
        allowance=allowance,
        scale=scale,
        lift=rules.lift,
    )


def _allowance(own: Sequence[Word], documents: int | None, rules: Rules) -> float:
    """What kept words may weigh together, in the unit of p * idf; 0 for a query without words."""
    telling = sum((share(word.df, documents) or 0.0) <= _TELLING_DF for word in own)
    k = telling or len(own)
    if k == 0:
        return 0.0
    return rules.budget * k / (k + rules.knee) * sum(idf(word.df, documents) for word in own)
