"""An evaluation as one self-contained page: figures, a chart of every query's change, and the terms behind it.

The page needs no network, reads in light and dark, and prints. Everything that comes from outside (queries, terms, ids,
settings) is escaped; a content security policy forbids loading anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from sira_es.evaluate.compare import Comparison
from sira_es.evaluate.evaluation import Evaluation, QueryChange

__all__ = ["render_report"]

Terms = Mapping[str, Sequence[Mapping[str, Any]]]
"""By query id, the `terms` of `expand --json`: `word`, `confidence`, `df`, `margin`, `verdict`, `boost`."""

_WIDTH, _HEIGHT, _LEFT = 960.0, 220.0, 40.0
_COUNTED = ("kept", "pinned")


def render_report(
    evaluation: Evaluation, terms: Terms | None = None, *, run: str | None = None, title: str = ""
) -> str:
    """Return the page as HTML. The changes of `run` (the last one if not named) order the table of queries."""
    runs = [name for name in evaluation.runs if name != evaluation.baseline]
    shown = run or (runs[-1] if runs else evaluation.baseline)
    body = [
        _figures(evaluation),
        _comparisons(evaluation.comparisons, f"Against {evaluation.baseline}"),
        *(_chart(name, evaluation) for name in runs),
        _condensed(evaluation),
        _findings(evaluation),
        _queries(evaluation, shown, terms or {}),
        _settings(evaluation),
    ]
    template = Template(files("sira_es.evaluate").joinpath("report.html").read_text(encoding="utf-8"))
    return template.substitute(
        title=escape(title or "Search evaluation"),
        subtitle=escape(f"{len(evaluation.queries)} judged queries; compared with {evaluation.baseline}"),
        body="\n".join(part for part in body if part),
    )


def _table(header: Iterable[str], rows: Iterable[Iterable[str]], numbers_from: int = 1) -> str:
    """Return a table of cells that are HTML already; columns from `numbers_from` on are set as numbers."""

    def line(tag: str, cells: Iterable[str]) -> str:
        marked = (
            f'<{tag} class="number">{cell}</{tag}>' if i >= numbers_from else f"<{tag}>{cell}</{tag}>"
            for i, cell in enumerate(cells)
        )
        return f"<tr>{''.join(marked)}</tr>"

    head, body = line("th", header), "\n".join(line("td", row) for row in rows)
    return f'<div class="wide"><table><thead>{head}</thead><tbody>\n{body}\n</tbody></table></div>'


def _figures(evaluation: Evaluation) -> str:
    rows = [
        [escape(name), *(f"{figures[measure]:.4f}" for measure in evaluation.measures)]
        for name, figures in evaluation.figures.items()
    ]
    return "<h2>Figures</h2>" + _table(["run", *map(escape, evaluation.measures)], rows)


def _comparisons(comparisons: Mapping[str, Mapping[str, Comparison]], heading: str) -> str:
    if not comparisons:
        return ""
    header = ("run", "measure", "gain", "difference, 95 % interval", "p, t-test", "p, randomized", "better", "worse")
    rows = [
        [escape(run), escape(measure), *_comparison(comparison)]
        for run, of_run in comparisons.items()
        for measure, comparison in of_run.items()
    ]
    return f"<h2>{escape(heading)}</h2>" + _table([*header, "ties", "worse by &gt; 0.1"], rows, 2)


def _comparison(found: Comparison) -> list[str]:
    relative = "" if found.relative is None else f"{100 * found.relative:+.1f} %"
    return [
        f'<span class="{_side(found.difference)}">{relative}</span>',
        f"{found.difference:+.3f}" + ("" if found.ci is None else f", {found.ci[0]:+.3f} to {found.ci[1]:+.3f}"),
        "" if found.p_t is None else f"{found.p_t:.2g}",
        "" if found.p_randomization is None else f"{found.p_randomization:.2g}",
        str(found.better),
        str(found.worse),
        str(found.ties),
        f"{100 * found.worse_by_0_1:.1f} %",
    ]


def _signed(difference: float) -> str:
    return f"{difference:+.3f}" if difference else "0"


def _side(difference: float) -> str:
    return "better" if difference > 0 else "worse" if difference < 0 else ""


def _chart(run: str, evaluation: Evaluation) -> str:
    """Return a bar for every query, the greatest loss left and the greatest gain right; a bar links to its row."""
    changes = evaluation.changes(run)
    top, bottom = max(0.2, changes[-1].difference), min(-0.2, changes[0].difference)
    anchors = _anchors(evaluation)
    zero = _HEIGHT * top / (top - bottom)
    step = (_WIDTH - _LEFT) / len(changes)
    bars = []
    for place, change in enumerate(changes):
        if change.difference:
            height = abs(change.difference) / (top - bottom) * _HEIGHT
            bars.append(
                f'<a href="#{anchors[change.query_id]}"><rect class="{_side(change.difference)}"'
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


def _anchors(evaluation: Evaluation) -> dict[str, str]:
    """Return the names of rows by query id: places in the file, since ids may hold anything."""
    return {query: f"query-{place}" for place, query in enumerate(evaluation.queries, 1)}


def _condensed(evaluation: Evaluation) -> str:
    condensed = evaluation.condensed
    if condensed is None:
        return ""
    heading = f"Against {evaluation.baseline}, without unjudged documents"
    return _comparisons(condensed.comparisons, heading) + (
        '<p class="soft">Documents that nobody judged are taken out of every ranking. A gain that shows only above is'
        " missing judgments' doing.</p>"
    )


def _findings(evaluation: Evaluation) -> str:
    if not evaluation.findings:
        return ""
    items = "".join(f"<li>{escape(str(finding))}</li>" for finding in evaluation.findings)
    return f"<h2>Noted in the input</h2><ul>{items}</ul>"


def _queries(evaluation: Evaluation, run: str, terms: Terms) -> str:
    measure = evaluation.measures[0]
    header = "".join(f'<th class="number">{escape(name)}</th>' for name in (*evaluation.runs, "change"))
    anchors = _anchors(evaluation)
    rows = []
    for change in evaluation.changes(run):
        values = (evaluation.values[name][measure][change.query_id] for name in evaluation.runs)
        cells = "".join(f'<td class="number">{value:.3f}</td>' for value in values)
        side = _side(change.difference)
        rows.append(
            f'<tr id="{anchors[change.query_id]}" data-change="{side}">'
            f"<td>{_query(change, terms.get(change.query_id, ()))}</td>{cells}"
            f'<td class="number {side}">{_signed(change.difference)}</td></tr>'
        )
    return (
        f"<h2>Queries: {escape(measure)}, by change of {escape(run)}</h2>"
        '<div class="filter"><input id="text" type="search" placeholder="Filter by query, id or term"'
        ' aria-label="Filter by query, id or term"><select id="change" aria-label="Which queries">'
        '<option value="">all</option><option value="worse">worse</option><option value="better">better</option>'
        '</select><span id="shown" class="soft"></span></div>'
        f'<div class="wide"><table id="queries"><thead><tr><th>query</th>{header}</tr></thead><tbody>\n'
        + "\n".join(rows)
        + "\n</tbody></table></div>"
    )


def _query(change: QueryChange, terms: Sequence[Mapping[str, Any]]) -> str:
    label = f'{escape(change.text)} <span class="soft">{escape(change.query_id)}</span>'
    if not terms:
        return label
    lines = "".join(_term(term) for term in terms)
    return (
        f"<details><summary>{label}</summary><table><thead><tr><th>word</th><th>verdict</th>"
        '<th class="number">confidence</th><th class="number">df</th><th class="number">margin</th>'
        f'<th class="number">boost</th></tr></thead><tbody>{lines}</tbody></table></details>'
    )


def _term(term: Mapping[str, Any]) -> str:
    counted = term.get("boost") or term.get("verdict") in _COUNTED
    numbers = "".join(
        f'<td class="number">{_number(term.get(key))}</td>' for key in ("confidence", "df", "margin", "boost")
    )
    words = f"<td>{escape(str(term.get('word', '')))}</td><td>{escape(str(term.get('verdict', '')))}</td>"
    row = "tr" if counted else 'tr class="out"'
    return f"<{row}>{words}{numbers}</tr>"


def _number(value: object) -> str:
    if value is None:
        return "unknown"
    return f"{value:.3g}" if isinstance(value, float) else escape(str(value))


def _settings(evaluation: Evaluation) -> str:
    if not evaluation.settings:
        return ""
    rows = [[escape(str(key)), escape(str(value))] for key, value in evaluation.settings.items()]
    return "<h2>Settings</h2>" + _table(["setting", "value"], rows, 2)
