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

from sira_es.evaluate.charts import Curve, anchors, budget_chart, changes_chart, side_of
from sira_es.evaluate.compare import Comparison
from sira_es.evaluate.evaluation import Evaluation, Explained, QueryChange

__all__ = ["render_report"]

Terms = Mapping[str, Sequence[Mapping[str, Any]]]
"""By query id, the `terms` of `expand --json`: `word`, `confidence`, `df`, `margin`, `verdict`, `boost`."""

_COUNTED = ("kept", "pinned")
_CHARTS = 3  # beyond so many runs, only the one that is shown gets a chart of every query
_CAUSES = 4


def render_report(
    evaluation: Evaluation,
    terms: Terms | None = None,
    *,
    curve: Curve = (),
    budget: float = 0.0,
    causes: Sequence[Explained] = (),
) -> str:
    """Return the page as HTML. The changes of run `expanded`, else of the last one, order the table of queries.

    `curve` is the first measure by expansion budget, `budget` the one in force; `causes` are the worst and best queries.
    """
    runs = [name for name in evaluation.runs if name != evaluation.baseline]
    shown = "expanded" if "expanded" in runs else runs[-1] if runs else evaluation.baseline
    body = [
        _figures(evaluation),
        _comparisons(evaluation.comparisons, f"Against {evaluation.baseline}"),
        *(changes_chart(name, evaluation) for name in runs if name == shown or len(runs) <= _CHARTS),
        budget_chart(curve, evaluation.measures[0], budget),
        _causes(causes, evaluation),
        _condensed(evaluation),
        _findings(evaluation),
        _queries(evaluation, shown, terms or {}),
        _settings(evaluation),
    ]
    template = Template(files("sira_es.evaluate").joinpath("report.html").read_text(encoding="utf-8"))
    return template.substitute(
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
        f'<span class="{side_of(found.difference)}">{relative}</span>',
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


def _causes(causes: Sequence[Explained], evaluation: Evaluation) -> str:
    if not causes:
        return ""
    rows = []
    for found in causes:
        change = found.change
        words = ", ".join(f"{escape(cause.word)} {cause.change:+.3f}" for cause in found.causes[:_CAUSES])
        link = f'<a href="#{anchors(evaluation)[change.query_id]}">{escape(change.text)}</a>'
        rows.append([link, words or "no word alone", f"{change.before:.3f}", f"{change.after:.3f}"])
    heading = f"Worst and best queries, {evaluation.measures[0]}, and the words that did it"
    note = '<p class="soft">Each word was left out in turn: the number is what it changed.</p>'
    table = _table(("query", "because of", evaluation.baseline, "expanded"), rows, 2)
    return f"<h2>{escape(heading)}</h2>" + note + table


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
    places = anchors(evaluation)
    rows = []
    for change in evaluation.changes(run):
        values = (evaluation.values[name][measure][change.query_id] for name in evaluation.runs)
        cells = "".join(f'<td class="number">{value:.3f}</td>' for value in values)
        side = side_of(change.difference)
        rows.append(
            f'<tr id="{places[change.query_id]}" data-change="{side}">'
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
