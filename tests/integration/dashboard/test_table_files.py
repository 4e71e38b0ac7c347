"""CSV and JSON of every table of every page: offered, and the same as the page shows."""

from __future__ import annotations

import csv
import io
import re
import time
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from lxml import html  # type: ignore[import-untyped]

from accounts.roles import Role
from dashboard import exports
from telemetry.timeline import tiers
from tests.browser.pages import OF_ANY_FLEET, Shown, of_things
from tests.builders.accounts import client_of
from tests.builders.fleet import SmallFleet
from tests.builders.lively import make_lively

TEMPLATES = Path(__file__).parents[3] / "templates"
#: Filled by a script from readings: a page comes without its rows, a file with them.
OF_A_SCRIPT = "timeline-table"
#: What goes on while the page and its file are asked for one after the other.
SPAN = re.compile(r"[0-9.]+ (s|min|h|d)\b")
#: No part of what a cell tells.
AWAY = (
    ".//*[@aria-hidden='true' or self::svg or self::form or @popover"
    " or (self::button and not(@class='term'))"
    " or contains(concat(' ', @class, ' '), ' row-acts ')]"
)
DASHES = ("", "\N{EN DASH}")


@pytest.fixture
def lively(db: None) -> SmallFleet:
    return make_lively()


def tables_of(answer: Any) -> list[Any]:
    """Return the tables of a page, but for those that a script fills."""
    found = html.document_fromstring(answer.content.decode()).xpath("//main//table")
    return [each for each in found if not each.xpath(f'ancestor::*[@id="{OF_A_SCRIPT}"]')]


def links_of(table: Any) -> dict[str, str]:
    tools = table.getnext()
    assert tools is not None, html.tostring(table)[:300]
    assert tools.get("class") == "table-tools", html.tostring(table)[:300]
    return {link.text: link.get("href") for link in tools.xpath("./a")}


def rows_of(table: Any) -> list[list[Any]]:
    """Return the cells of a table's rows, but for rows that are one sentence."""
    rows = [row.xpath("./td|./th") for row in table.xpath("./tbody/tr")]
    return [row for row in rows if len(row) > 1]


def words_of(cell: Any) -> str:
    """Return what a reader has of a cell, without pictures and controls."""
    for away in cell.xpath(AWAY):
        away.drop_tree()
    return " ".join(cell.text_content().split())


def letters(words: str) -> str:
    """Return words without white space, of which markup has more or less than files."""
    return "".join(SPAN.sub("T", words).split())


def agrees(value: object, cell: Any) -> bool:
    """Say whether a value of a file is what a cell shows, as exactly as it shows it."""
    words = words_of(cell)
    if value is None:
        return words in (*DASHES, "-")
    if isinstance(value, str):
        moments = [each.get("datetime") for each in cell.xpath(".//time")]
        is_moment = bool(moments) and value.endswith("Z") and value[:16] == moments[0][:16]
        return is_moment or letters(value) == letters(words)
    shown = re.match("[\N{MINUS SIGN}-]?[0-9][0-9,.]*", words)
    if shown is None:
        return True  # words for a number, such as "never"
    text = shown[0].replace(",", "").replace("\N{MINUS SIGN}", "-").rstrip(".")
    unit = words[shown.end() :].strip().split(" ")[0]
    if unit in ("s", "min", "h", "d", "years", "GPUs", "kW", "MW", "W") or "bit/s" in unit:
        return True  # told in another unit than the file's, as spans of time are
    half = 0.5 * 10.0 ** -len(text.partition(".")[2])
    assert isinstance(value, (int, float))
    return abs(float(text) - value) <= half * 1.001


def test_every_table_of_every_page_is_offered_as_csv_and_json_with_the_same_rows(
    lively: SmallFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Readings grow old, and more is assumed in their place: page and file are of one moment.
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    operator = client_of(Role.OPERATOR)
    seen: set[str] = set()
    wrong: list[object] = []
    for name, path in (OF_ANY_FLEET | of_things(Shown.of(lively))).items():
        page = operator.get(path)
        for table in tables_of(page):
            links = links_of(table)
            assert list(links) == ["CSV", "JSON"], name
            seen.add(check_files(operator, table, links, wrong))
    assert wrong == []
    assert len(seen) > 25, seen


def check_files(client: Client, table: Any, links: dict[str, str], wrong: list[object]) -> str:
    told = client.get(links["JSON"])
    assert told.status_code == 200, (links["JSON"], told.content)
    found = told.json()
    names = [each["name"] for each in found["columns"]]
    titles = [each["title"] for each in found["columns"]]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch("[a-z0-9_]+", each) for each in names)
    heads = [words_of(cell) for cell in table.xpath("./thead/tr/th")]
    places = placed(heads, titles)
    rows = rows_of(table)
    assert len(found["rows"]) == len(rows), links["JSON"]
    for row, cells in zip(found["rows"], rows, strict=True):
        for column, at in zip(names, places, strict=True):
            if at < len(cells) and not agrees(row[column], cells[at]):
                wrong.append((links["JSON"], column, row[column], words_of(cells[at])))
    lines = list(csv.reader(io.StringIO(client.get(links["CSV"]).content.decode())))
    assert lines[0] == names
    assert len(lines) == len(rows) + 1
    return str(found["table"])


def placed(heads: list[str], titles: list[str]) -> list[int]:
    """Return the place of each title among the heads, in order."""
    places, at = [], 0
    for title in titles:
        at = heads.index(title, at)
        places.append(at)
        at += 1
    return places


def test_every_table_in_the_templates_stands_within_the_tag() -> None:
    bare = []
    for path in TEMPLATES.rglob("*.html"):
        lines = path.read_text().splitlines()
        for before, line in zip(["", *lines], lines, strict=False):
            if "<table" in line and "{% table" not in before:
                bare.append(str(path.relative_to(TEMPLATES)))
    assert bare == []


@pytest.mark.parametrize("name", ["rack", "zone", "conditions-site", "job-running", "incident"])
def test_the_table_under_a_chart_has_files_with_what_was_read(
    lively: SmallFleet, name: str
) -> None:
    operator = client_of(Role.OPERATOR)
    path = of_things(Shown.of(lively))[name]
    page = html.document_fromstring(operator.get(path).content.decode())
    (table,) = page.xpath(f'//*[@id="{OF_A_SCRIPT}"]/table')
    assert not table.xpath("./tbody/tr")
    links = links_of(table)
    found = operator.get(links["JSON"]).json()
    assert [each["name"] for each in found["columns"]] == ["reading", "min", "mean", "max"]
    assert found["rows"]
    for row in found["rows"]:
        least, mean, greatest = (bound(row[each]) for each in ("min", "mean", "max"))
        assert least <= mean <= greatest
    lines = list(csv.reader(io.StringIO(operator.get(links["CSV"]).content.decode())))
    assert len(lines) == len(found["rows"]) + 1


def bound(value: float | str) -> float:
    """Return an extreme, which says so where there may be a lower or a higher one."""
    return float(str(value).lstrip("≤≥ ").replace(",", ""))


def test_the_calendar_has_files_of_what_is_planned_and_of_what_a_site_is_committed_to(
    lively: SmallFleet,
) -> None:
    operator = client_of(Role.OPERATOR)
    tables = tables_of(operator.get("/calendar/?site=oslo&days=1"))
    assert links_of(tables[-1])["CSV"] == "/calendar/?site=oslo&days=1&table=range&format=csv"
    (row,) = operator.get("/calendar/?site=oslo&days=1&table=range&format=json").json()["rows"]
    assert row["reading"] == "Committed, W"
    assert 0.0 < row["min"] <= row["mean"] <= row["max"]
    api = operator.get("/api/v1/calendar?days=1").json()["sites"]
    (oslo,) = (each for each in api if each["site"] == "oslo")
    assert row["max"] >= oslo["now_w"] > 0.0


def test_a_range_that_is_too_much_to_read_is_refused_and_no_empty_file(
    lively: SmallFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiers, "MOST_ROWS", 1)
    operator = client_of(Role.OPERATOR)
    assert operator.get("/conditions/oslo/").status_code == 200
    assert operator.get("/conditions/oslo/?table=range&format=csv").status_code == 400


def test_a_table_stands_in_a_box_that_scrolls_and_is_called_as_its_heading(
    lively: SmallFleet,
) -> None:
    page = client_of(Role.OPERATOR).get("/rollouts/").content.decode()
    box = 'class="scroll" tabindex="0" role="region" aria-labelledby="rollouts-title"'
    assert 'id="rollouts-title"' in page
    assert f'<div {box} id="rollouts-scroll">' in page


def test_a_file_has_all_pages_of_a_list(
    lively: SmallFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dashboard.views import queue

    monkeypatch.setattr(queue, "_PAGE_SIZE", 1)
    operator = client_of(Role.OPERATOR)
    [table, *_] = tables_of(operator.get("/queue/?page=2"))
    assert len(rows_of(table)) == 1
    links = links_of(table)
    assert "page=" not in links["CSV"]
    assert len(operator.get(links["JSON"]).json()["rows"]) > 1


def test_a_file_keeps_the_filters_of_its_page(lively: SmallFleet) -> None:
    operator = client_of(Role.OPERATOR)
    url = "/queue/?table=queue-waiting&format=json"
    whole = operator.get(url).json()["rows"]
    reasons = {row["why_it_waits"] for row in whole}
    assert len(reasons) > 1
    some = operator.get(f"{url}&search=llama").json()["rows"]
    assert 0 < len(some) < len(whole)


def test_a_list_longer_than_the_limit_says_so(
    lively: SmallFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "MOST_ROWS", 1)
    operator = client_of(Role.OPERATOR)
    found = operator.get("/queue/?table=queue-waiting&format=json").json()
    assert found["is_cut"]
    assert len(found["rows"]) == 1
    answer = operator.get("/queue/?table=queue-waiting&format=csv")
    assert "queue-waiting-first-1-" in answer["Content-Disposition"]


@pytest.mark.parametrize(
    ("query", "status", "word"),
    [
        ("table=queue-waiting&format=xlsx", 400, "format: "),
        ("table=queue-waiting", 400, "format: "),
        ("table=no-such&format=csv", 404, "table: "),
    ],
)
def test_what_cannot_be_had_is_refused_by_the_name_of_its_field(
    lively: SmallFleet, query: str, status: int, word: str
) -> None:
    answer = client_of(Role.OPERATOR).get(f"/queue/?{query}")
    assert answer.status_code == status
    assert answer.content.decode().startswith(word)


def test_a_stranger_gets_the_login_and_no_file(lively: SmallFleet, client: Client) -> None:
    answer = client.get("/queue/?table=queue-waiting&format=csv")
    assert answer.status_code == 302


def test_a_file_leaves_no_raw_value_on_pages_that_are_made_once_for_all(
    lively: SmallFleet,
) -> None:
    operator = client_of(Role.OPERATOR)
    for path in ("/conditions/", "/live/conditions", "/live/conditions/oslo"):
        table = "sites" if "oslo" not in path else "power"
        assert operator.get(f"{path}?table={table}&format=csv").status_code == 200
        assert b"\x02" not in operator.get(path).content


def test_the_names_of_jobs_of_others_stay_hidden_in_files(lively: SmallFleet) -> None:
    stranger = client_of(Role.ML_USER)
    page = stranger.get("/queue/")
    assert b"llama-ft-12" not in page.content
    for form in exports.FORMATS:
        answer = stranger.get(f"/queue/?table=queue-waiting&format={form}")
        assert answer.status_code == 200
        assert b"llama-ft-12" not in answer.content
        assert b"another project" in answer.content


def test_a_column_that_is_hidden_is_hidden_on_the_page_in_files_and_after_each_poll(
    lively: SmallFleet,
) -> None:
    operator = client_of(Role.OPERATOR)
    page = operator.get("/queue/?project=vision&hide=queue-waiting.project&hide=queue-waiting.nope")
    [table, *_] = tables_of(page)
    assert "hide-9" in table.get("class").split()
    found = operator.get(links_of(table)["JSON"]).json()
    assert "project" not in [each["name"] for each in found["columns"]]
    assert found["rows"]
    [panel] = html.document_fromstring(page.content.decode()).xpath('//*[@id="queue-panel"]')
    polled = html.document_fromstring(operator.get(panel.get("hx-get")).content.decode() or "<p>")
    assert polled.xpath('//table[contains(@class, "hide-9")]') or polled.xpath("//p")
    # What is chosen stays while filters change, and the other way round.
    form = table.getnext().xpath(".//form")[0]
    assert form.xpath('.//input[@name="project" and @value="vision"]')
    filters = html.document_fromstring(page.content.decode()).xpath('//form[@aria-label="Filters"]')
    assert filters[0].xpath('.//input[@name="hide" and @value="queue-waiting.project"]')


def test_all_columns_are_never_hidden_at_once(lively: SmallFleet) -> None:
    operator = client_of(Role.OPERATOR)
    [table, *_] = tables_of(operator.get("/queue/"))
    names = [each.get("value") for each in table.getnext().xpath('.//input[@name="hide"]')]
    hidden = "&".join(f"hide={each}" for each in names)
    [table, *_] = tables_of(operator.get(f"/queue/?{hidden}"))
    assert "hide-" not in table.get("class")
