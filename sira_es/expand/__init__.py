"""Queries: text in, Expansion out, within a deadline."""

from sira_es.expand.expanded import Expanded
from sira_es.expand.expander import Expander
from sira_es.expand.explain import Contribution, contributions
from sira_es.expand.gathered import Gathered
from sira_es.expand.guard import Guarded
from sira_es.expand.rules_export import querqy_rules, solr_synonyms
from sira_es.expand.skip import Skip
from sira_es.expand.terms import Rule, TermStore
from sira_es.expand.warming import Warmed, warm
from sira_es.expand.why_not import WhyNot, why_not

__all__ = [
    "Contribution",
    "Expanded",
    "Expander",
    "Gathered",
    "Guarded",
    "Rule",
    "Skip",
    "TermStore",
    "Warmed",
    "WhyNot",
    "contributions",
    "querqy_rules",
    "solr_synonyms",
    "warm",
    "why_not",
]
