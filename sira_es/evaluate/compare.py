"""Is one run better than another on the same queries? Paired tests, an interval, and who wins and loses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

__all__ = ["SEED", "Comparison", "Test", "compare"]

Test = Literal["paired t", "randomization"]

SEED = 20260701
_RESAMPLES = 10_000
_CELLS = 2_000_000  # signs drawn at a time: 16 MB
_SAME = 1e-9  # differences below are rounding


@dataclass(frozen=True, slots=True)
class Comparison:
    """A run against the baseline, in one measure.

    `relative` is the gain of the mean (0.28 is +28 %), None where the baseline's mean is 0; `difference` that of the
    means, with `ci`, its 95 % confidence interval (Student's t). `p` is two-sided and belongs to `test`; both p values
    are None where there is nothing to test: fewer than two queries, or one and the same difference for every query.
    `better`, `worse` and `ties` count queries; `worse_by_0_1` is the share that loses more than 0.1.
    """

    relative: float | None
    difference: float
    ci: tuple[float, float] | None
    test: Test
    p_t: float | None
    p_randomization: float | None
    better: int
    worse: int
    ties: int
    worse_by_0_1: float

    @property
    def p(self) -> float | None:
        return self.p_t if self.test == "paired t" else self.p_randomization

    def to_json(self) -> dict[str, object]:
        return {
            "relative": self.relative,
            "p": self.p,
            "test": self.test,
            "better": self.better,
            "worse": self.worse,
            "worse_by_0.1": self.worse_by_0_1,
            "ci": None if self.ci is None else list(self.ci),
            "difference": self.difference,
            "ties": self.ties,
            "p_randomization": self.p_randomization,
        }


def compare(baseline: Mapping[str, float], run: Mapping[str, float], *, test: Test = "paired t") -> Comparison:
    """Compare values by query id; both hold the same queries, at least one."""
    differences = [run[query] - value for query, value in baseline.items()]
    differences = [0.0 if abs(d) < _SAME else d for d in differences]
    count = len(differences)
    before = math.fsum(baseline.values()) / count
    mean = math.fsum(differences) / count
    p_t, ci = _student(differences)
    return Comparison(
        relative=mean / before if before else None,
        difference=mean,
        ci=ci,
        test=test,
        p_t=p_t,
        p_randomization=None if p_t is None else _randomization(differences),
        better=sum(d > 0 for d in differences),
        worse=sum(d < 0 for d in differences),
        ties=sum(d == 0 for d in differences),
        worse_by_0_1=sum(d < -0.1 - _SAME for d in differences) / count,
    )


def _student(differences: list[float]) -> tuple[float | None, tuple[float, float] | None]:
    """Return p of the paired t-test and the 95 % interval of the mean difference; None for both without variance."""
    from scipy import stats

    count = len(differences)
    if count < 2:
        return None, None
    mean = math.fsum(differences) / count
    error = math.sqrt(math.fsum((d - mean) ** 2 for d in differences) / (count - 1) / count)
    if error < _SAME:
        return None, None
    half = float(stats.t.ppf(0.975, count - 1)) * error
    return 2 * float(stats.t.sf(abs(mean) / error, count - 1)), (mean - half, mean + half)


def _randomization(differences: list[float]) -> float:
    """Return p of Fisher's randomization test: how often random signs make a mean at least as far from 0.

    10,000 draws from a fixed seed; the observed signs count as one of them, so p is never below 1/10,001.
    """
    import numpy as np

    sizes = np.array([abs(d) for d in differences if d])
    observed = abs(math.fsum(differences))
    draw = np.random.default_rng(SEED)
    as_far = 1
    for start in range(0, _RESAMPLES, step := max(1, _CELLS // len(sizes))):
        signs = draw.integers(0, 2, size=(min(step, _RESAMPLES - start), len(sizes))) * 2 - 1
        as_far += int(np.count_nonzero(np.abs(signs @ sizes) >= observed - _SAME))
    return as_far / (_RESAMPLES + 1)
