"""Charts as SVG that takes its colours from the page: every query's change, and the figure by expansion budget."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from sira_es.evaluate.evaluation import Evaluation

__all__ = ["Curve", "anchors", "budget_chart", "changes_chart", "side_of"]

Curve = Sequence[tuple[float, float]]
"""(budget, mean of a measure), by rising budget."""

_WIDTH, _HEIGHT, _LEFT = 960.0, 220.0, 40.0


def side_of(difference: float) -> str:
    return "better" if difference > 0 else "worse" if difference < 0 else ""


def anchors(evaluation: Evaluation) -> dict[str, str]:
    """Return the names of rows by query id: places in the file, since ids may hold anything."""
    return {query: f"query-{place}" for place, query in enumerate(evaluation.queries, 1)}


def changes_chart(run: str, evaluation: Evaluation) -> str:
    """Return a bar for every query, the greatest loss left and the greatest gain right; a bar links to its row."""
    changes = evaluation.changes(run)
    top, bottom = max(0.2, changes[-1].difference), min(-0.2, changes[0].difference)
    places = anchors(evaluation)
    zero = _HEIGHT * top / (top - bottom)
    step = (_WIDTH - _LEFT) / len(changes)
    bars = []
    for place, change in enumerate(changes):
        if change.difference:
            height = abs(change.difference) / (top - bottom) * _HEIGHT
            bars.append(
                f'<a href="#{places[change.query_id]}"><rect class="{side_of(change.difference)}"'
                f' x="{_LEFT + place * step:.2f}" y="{zero - height if change.difference > 0 else zero:.2f}"'
                f' width="{step * 0.86:.2f}" height="{height:.2f}"><title>{change.difference:+.3f}'
                f" {escape(change.text)}</title></rect></a>"
            )
    limit = zero + 0.1 / (top - bottom) * _HEIGHT
    name = escape(evaluation.measures[0])
    return (
        f"<h2>Change of every query: {escape(run)}, {name}</h2>"
        f'<figure><svg viewBox="0 -8 {_WIDTH:.0f} {_HEIGHT + 16:.0f}" role="img"'
        f' aria-label="Change in {name} of every query, sorted">\n'
        + "\n".join(bars)
        + f'\n<line x1="{_LEFT}" x2="{_WIDTH}" y1="{zero:.2f}" y2="{zero:.2f}"/>'
        f'<line class="limit" x1="{_LEFT}" x2="{_WIDTH}" y1="{limit:.2f}" y2="{limit:.2f}"/>'
        + "".join(
            f'<text x="{_LEFT - 6}" y="{y + 4:.2f}" text-anchor="end">{f"{value:+.1f}" if value else "0"}</text>'
            for value, y in ((top, 0.0), (0.0, zero), (-0.1, limit), (bottom, _HEIGHT))
        )
        + "</svg></figure>"
    )


def budget_chart(curve: Curve, measure: str, budget: float) -> str:
    """Return a line over budgets (equal steps), with the one in force marked; nothing for fewer than two points."""
    if len(curve) < 2:
        return ""
    values = [value for _, value in curve]
    low, high = min(values), max(values)
    room = (high - low) / 10 or 0.01
    low, high = low - room, high + room
    left = _LEFT + 20
    step = (_WIDTH - left - 30) / (len(curve) - 1)
    points = [(left + place * step, _HEIGHT * (high - value) / (high - low)) for place, (_, value) in enumerate(curve)]
    line = " ".join(f"{x:.2f},{y:.2f}" for x, y in points)
    marks = []
    for (x, y), (at, value) in zip(points, curve, strict=True):
        here = math.isclose(at, budget)
        marks.append(
            f'<circle class="{"worse" if here else "better"}" cx="{x:.2f}" cy="{y:.2f}" r="{6 if here else 4}">'
            f"<title>budget {at:g}: {value:.4f}</title></circle>"
            f'<text x="{x:.2f}" y="{y - 10:.2f}" text-anchor="middle">{value:.3f}</text>'
            f'<text x="{x:.2f}" y="{_HEIGHT + 18:.2f}" text-anchor="middle">{at:g}</text>'
        )
    name = escape(measure)
    return (
        f"<h2>{name} by expansion budget</h2>"
        '<p class="soft">0: no words for the query. The larger mark is the budget in force.</p>'
        f'<figure><svg viewBox="0 -16 {_WIDTH:.0f} {_HEIGHT + 40:.0f}" role="img" aria-label="{name} by budget">\n'
        f'<polyline class="curve" points="{line}"/>' + "\n".join(marks) + "</svg></figure>"
    )
