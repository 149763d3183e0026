"""The report: one page with figures, chart and terms, which loads nothing and runs nothing of what it shows."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from sira_es.evaluate import Evaluation, Finding, assess, render_report
from sira_es.evaluate.evaluation import Cause, Explained

ATTACK = "</script><script>alert('x')</script><img src=x onerror=alert(1)>\"'&"
TERM = {
    "word": ATTACK,
    "phrases": [],
    "confidence": 0.5,
    "df": None,
    "margin": 1.2345,
    "verdict": "kept",
    "boost": 0.25,
}


def evaluation() -> Evaluation:
    texts = {"up": "goes up", "down": "goes down", ATTACK: ATTACK}
    runs = {
        "baseline": {"up": ["x", "a"], "down": ["a"], ATTACK: ["a"]},
        "expanded": {"up": ["a"], "down": ["x", "a"], ATTACK: ["a"]},
    }
    return assess(
        texts,
        {query: {"a": 1, "x": 0} for query in texts},
        runs,
        baseline="baseline",
        measures=("nDCG@10", "Judged@10"),
        settings={"note": ATTACK},
        findings=(Finding("qrels.tsv", "grades below 0, counted as 0", 2, ATTACK),),
    )


class Page(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in {"meta", "input"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def test_the_page_is_well_formed_and_names_every_figure() -> None:
    page = Page(render_report(evaluation()))
    assert page.open == []
    for expected in (
        "Search evaluation",
        "3 judged queries",
        "nDCG@10",
        "Judged@10",
        "0.8770",
        "95 % interval",
        "33.3 %",
    ):
        assert expected in page.text


def test_nothing_that_comes_from_outside_becomes_markup() -> None:
    html = render_report(evaluation(), {ATTACK: [TERM]})
    page = Page(html)
    assert len(page.named("script")) == 1
    assert page.named("img") == []
    assert ATTACK in page.text
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)


def test_the_page_asks_no_network_and_forbids_it() -> None:
    html = render_report(evaluation(), {"up": [TERM]})
    page = Page(html)
    assert not any(name in attributes for _, attributes in page.tags for name in ("src", "srcset", "data"))
    assert page.named("link") == []
    assert all((link.get("href") or "").startswith("#query-") for link in page.named("a"))
    assert not re.search(r"url\(|@import|https?:", html)
    assert any("default-src 'none'" in (meta.get("content") or "") for meta in page.named("meta"))


def test_every_changed_query_has_a_bar_and_every_query_a_row_worst_first() -> None:
    page = Page(render_report(evaluation()))
    assert [bar["class"] for bar in page.named("rect")] == ["worse", "better"]
    rows = [row for row in page.named("tr") if "id" in row]
    assert [(row["id"], row["data-change"]) for row in rows] == [
        ("query-2", "worse"),
        ("query-3", ""),
        ("query-1", "better"),
    ]
    assert {link["href"] for link in page.named("a")} == {"#query-1", "#query-2"}


def test_a_query_shows_its_terms_with_verdict_and_boost() -> None:
    left_out = {"word": "rare", "confidence": 0.3, "df": 0, "margin": -0.1, "verdict": "absent", "boost": 0.0}
    page = Page(render_report(evaluation(), {"up": [TERM, left_out]}))
    assert len(page.named("details")) == 1
    for shown in ("kept", "0.25", "1.23", "unknown", "rare", "absent"):
        assert shown in page.text
    assert len([row for row in page.named("tr") if row.get("class") == "out"]) == 1


def test_findings_and_condensed_figures_are_on_the_page() -> None:
    page = Page(render_report(evaluation()))
    assert "grades below 0, counted as 0: 2" in page.text
    assert "without unjudged documents" in page.text


def test_a_lone_baseline_makes_a_page_too() -> None:
    alone = assess({"q": "text"}, {"q": {"a": 1}}, {"bm25": {"q": ["a"]}}, baseline="bm25", measures=("nDCG@10",))
    page = Page(render_report(alone))
    assert page.named("svg") == []
    assert len([row for row in page.named("tr") if "id" in row]) == 1


def test_the_budget_curve_has_a_mark_for_each_budget_and_a_larger_one_for_that_in_force() -> None:
    page = Page(render_report(evaluation(), curve=[(0.0, 0.5), (0.6, 0.7), (1.2, 0.8)], budget=1.2))
    marks = page.named("circle")
    assert [mark["r"] for mark in marks] == ["4", "4", "6"]
    heights = [float(mark["cy"] or 0) for mark in marks]
    assert heights == sorted(heights, reverse=True)
    assert "nDCG@10 by expansion budget" in page.text


def test_one_point_is_no_curve() -> None:
    assert Page(render_report(evaluation(), curve=[(1.2, 0.8)], budget=1.2)).named("circle") == []


def test_worst_and_best_queries_are_told_with_the_words_that_did_it() -> None:
    found = evaluation()
    causes = [
        Explained(found.worst("expanded")[0], (Cause(ATTACK, -0.2), Cause("cooler", -0.1))),
        Explained(found.best("expanded")[0], ()),
    ]
    page = Page(render_report(found, causes=causes))
    assert f"{ATTACK} -0.200, cooler -0.100" in page.text
    assert "no word alone" in page.text
    assert page.named("img") == []


def test_of_many_runs_only_the_one_that_is_shown_has_a_chart() -> None:
    texts = {"q": "text"}
    rankings = {"baseline": {"q": ["x", "a"]}, "expanded": {"q": ["a"]}} | {f"r{i}": {"q": ["a"]} for i in range(4)}
    many = assess(texts, {"q": {"a": 1}}, rankings, baseline="baseline", measures=("nDCG@10",))
    page = Page(render_report(many))
    assert len(page.named("svg")) == 1
    assert "Change of every query: expanded" in page.text
