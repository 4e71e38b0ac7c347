"""The report for people, as far as it can be judged without a browser."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.matrix import report
from lab.matrix.report.markup import Markup, el, joined
from lab.matrix.result import (
    Cell,
    Check,
    MatrixResult,
    Part,
    ResultError,
    Series,
    SubjectKind,
    Verdict,
    make_result,
)
from tests.builders.matrix import make_cell, make_matrix

_VOID = {"meta", "br"}


class Page(HTMLParser):
    """What a page consists of. Fails where elements are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.sources: list[str] = []
        self.open: list[str] = []
        self.tags: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append(tag)
        self.ids += [given["id"] or ""] if "id" in given else []
        self.links += [given["href"] or ""] if "href" in given else []
        self.sources += [given["src"] or ""] if "src" in given else []
        assert "style" not in given
        assert not any(name.startswith("on") for name in given)
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def make(*cells: Cell) -> MatrixResult:
    return make_result(
        subject="python train.py", kind=SubjectKind.COMMAND, at="2026-11-20T20:50:00Z", cells=cells
    )


def test_ids_are_unique_and_every_link_leads_somewhere() -> None:
    page = Page(report.html(make_matrix()))
    assert len(page.ids) == len(set(page.ids))
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)


def test_it_fetches_nothing_and_only_its_own_script_runs() -> None:
    text = report.html(make_matrix())
    page = Page(text)
    assert page.sources == []
    assert all(link.startswith("#") for link in page.links)
    assert not re.search(r"url\((?!#)|@import|https?://(?!www\.w3\.org/2000/svg)", text)
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', text)
    assert "default-src &#x27;none&#x27;" in policy
    for tag in ("style", "script"):
        (body,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{tag}-src &#x27;sha256-{digest}&#x27;" in policy


def test_verdict_grade_and_counts_come_first() -> None:
    text = report.html(make_matrix())
    top = text[text.index("<h1>") - 200 : text.index('id="matrix"')]
    assert "<h1>builtin fails 2 of 16 cells.</h1>" in top
    assert "</small>C</div>" in top
    for said in ("14 passed", "2 failed", "2 not run"):
        assert said in top


def test_there_is_a_cell_for_each_scenario_and_seed_with_sign_and_word() -> None:
    text = report.html(make_matrix())
    (body,) = re.findall(r'<table class="matrix">.*?<tbody>(.*?)</tbody>', text, re.DOTALL)
    marks = re.findall(r'<a href="#cell-\d+" class="tag-(\w+)"', body)
    assert len(marks) == 18
    assert marks[6:9] == ["failed", "passed", "failed"]
    assert body.count("<span>failed</span>") == 2
    assert body.count("<span>not run</span>") == 2
    assert "5.2 kW over at 15:20" in body


def test_what_several_seeds_have_in_common_is_said_once() -> None:
    text = report.html(make_matrix())
    (whys,) = re.findall(r'<section class="panel" id="why".*?</section>', text, re.DOTALL)
    assert whys.count("5.2 kW over at 15:20") == 1
    assert whys.count(">seed 1</a>") == 2


def test_where_all_passed_there_is_nothing_to_filter_or_to_explain() -> None:
    text = report.html(make_matrix(over=0.0))
    assert 'id="why"' not in text
    assert 'id="only-bad"' not in text
    assert "passes all 18 cells" in text


def test_a_plot_shades_faults_draws_the_budget_and_marks_what_is_over() -> None:
    text = report.html(make(make_cell(over=0.06)))
    (figure,) = re.findall(r'<figure class="plot".*?</figure>', text, re.DOTALL)[:1]
    # Two faults: 900 to 2100 s and 1500 to 1800 s of 3600 s, on a plot that is 1000 wide.
    shades = re.findall(
        r'<rect x="([\d.]+)" y="0" width="([\d.]+)" height="150" class="fault">', figure
    )
    assert [(float(x), float(width)) for x, width in shades] == [(250.0, 333.3), (416.7, 83.3)]
    assert "supply temperature" in figure
    assert figure.count('class="budget"') == 1
    assert "budget of the site 86<" in figure
    assert figure.count('class="line over"') == 1
    (other,) = re.findall(
        r'<figure class="plot".*?</figure>', report.html(make(make_cell())), re.DOTALL
    )[:1]
    assert "line over" not in other


def test_the_coordinates_of_a_line_are_its_values() -> None:
    series = Series(name="x", unit="W", t_s=[0.0, 10.0, 20.0, 30.0], values=[1.0, None, 2.5, 3.0])
    text = report.html(make(make_cell(series=[series], simulated_s=30.0)))
    assert 'd="M0 1M20 2.5L30 3" class="line s1" data-name="x"' in text


def test_a_plot_says_in_words_what_it_shows() -> None:
    text = report.html(make(make_cell(over=0.06)))
    (said, *_) = re.findall(r'<figure class="plot"[^>]*aria-label="([^"]+)"', text)
    assert said.startswith("site power. site power: from ")
    assert "budget 86 kW, over it in" in said


@pytest.mark.parametrize(
    "series",
    [
        [],
        [Series(name="x", unit="", t_s=[], values=[])],
        [Series(name="x", unit="", t_s=[0.0, 5.0], values=[None, None])],
        [Series(name="x", unit="", t_s=[0.0], values=[3.0])],
        [Series(name="x", unit="", t_s=[0.0, 1.0], values=[0.0, 0.0], budget=0.0)],
        [Series(name=f"x{i}", unit="", plot="all", t_s=[0.0, 1.0], values=[1.0, 2.0])
         for i in range(9)],
    ],
)  # fmt: skip
def test_odd_series_make_a_page(series: list[Series]) -> None:
    text = report.html(make(make_cell(series=series, simulated_s=0.0)))
    page = Page(text)
    assert page.tags.count("figure") == (
        3 if len(series) == 9 else bool(series and text.count("<figure"))
    )
    assert all(f">x{i}<" in text for i in range(len(series)) if len(series) == 9)


@settings(max_examples=30)
@given(st.text(max_size=80))
def test_what_a_job_says_stays_text(said: str) -> None:
    cell = make_cell(
        title=said, why=said, log=said, about=said, again=said, series=[],
        checks=[Check(text=said, verdict=Verdict.FAILED, said=said)],
    )  # fmt: skip
    expected = Page(
        report.html(
            make(
                make_cell(
                    title="t", log="l", checks=[Check(text="t", verdict=Verdict.FAILED, said="s")]
                )
            )
        )
    )
    found = Page(report.html(make(cell)))
    assert {"script", "style"} & set(found.tags) == {"script", "style"}
    assert set(found.tags) <= set(expected.tags) | {"p", "pre", "div", "h4"}


def test_markup_escapes_what_is_not_markup() -> None:
    assert el("p", '<b> & "', title='"<') == '<p title="&quot;&lt;">&lt;b&gt; &amp; "</p>'
    assert el("br") == "<br>"
    assert joined(None, "a", Markup("<i>")) == "a<i>"
    assert el("a", data_end="3", hidden=True, open=False, class_="x") == (
        '<a data-end="3" hidden class="x"></a>'
    )


def test_all_reports_are_written_and_the_result_is_read_again(tmp_path: Path) -> None:
    result = make_matrix()
    files = report.write(result, tmp_path / "out")
    assert [file.name for file in files] == [
        "result.json", "report.html", "report.md", "junit.xml",
    ]  # fmt: skip
    assert report.read(tmp_path / "out") == result
    assert report.read(files[0]) == result
    with pytest.raises(ResultError, match=re.escape(f"there is no {report.RESULT} here")):
        report.read(tmp_path)
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(ResultError, match=r"bad\.json: not the result of a matrix"):
        report.read(tmp_path / "bad.json")


def test_a_cell_says_where_its_time_went_and_why_in_every_report() -> None:
    cause = "It took 9 s, 4 s without faults: 5 s more <computing>."
    parts = [
        Part(name="computing", took_s=8.5, usual_s=3.5),
        Part(name="saving and restoring", took_s=0.5, usual_s=0.5),
    ]
    cell = make_cell(over=0.1, cause=cause, parts=parts)
    result = make_result(subject="x", kind=SubjectKind.COMMAND, at="now", cells=[cell])
    page = report.html(result)
    Page(page)
    assert "5 s more &lt;computing&gt;" in page
    text = re.sub(r"<[^>]+>", " ", page)
    assert re.search(r"computing\s+8.5 s\s+3.5 s\s+5 s", text)
    assert "5 s more" in report.markdown(result)
    assert "5 s more" in report.junit_xml(result).decode()
    assert "Where the time went" not in report.html(make_matrix())
