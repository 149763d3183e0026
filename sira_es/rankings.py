"""How much two rankings have in common."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["jaccard", "rbo"]


def jaccard(one: Sequence[str], other: Sequence[str]) -> float:
    """The share of documents that both have; 1 for two empty rankings."""
    union = set(one) | set(other)
    return len(set(one) & set(other)) / len(union) if union else 1.0


def rbo(one: Sequence[str], other: Sequence[str], p: float = 0.9) -> float:
    """Rank-biased overlap, extrapolated, of two rankings without repeats; 1 for two empty rankings.

    Webber, Moffat, Zobel: A similarity measure for indefinite rankings, ACM TOIS 28(4), 2010, equation 32. `p` in (0, 1)
    is how likely a reader goes on to the next rank; at .9 the first ten ranks have 86 % of the weight.
    """
    short, long = sorted((one, other), key=len)
    if not long:
        return 1.0
    if not short:
        return 0.0
    s, n = len(short), len(long)
    common = [len(set(short[:d]) & set(long[:d])) for d in range(1, n + 1)]
    agreed = sum(common[d - 1] / d * p**d for d in range(1, n + 1))
    assumed = sum(common[s - 1] * (d - s) / (s * d) * p**d for d in range(s + 1, n + 1))
    rest = (common[-1] - common[s - 1]) / n + common[s - 1] / s
    return (1 - p) / p * (agreed + assumed) + rest * p**n
