"""Queries: text in, Expansion out, within a deadline."""

from sira_es.expand.expander import Expanded, Expander, Gathered
from sira_es.expand.explain import Contribution, contributions

__all__ = ["Contribution", "Expanded", "Expander", "Gathered", "contributions"]
