"""JUnit XML: true to the schema of Ant's JUnitReport (the strictest of those in use)."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from lab.matrix.report import junit_xml
from lab.matrix.result import Check, MatrixResult, SubjectKind, Verdict, make_result
from tests.builders.matrix import make_cell, make_matrix

#: Of each element: the attributes that it has to have, those that it may have, and its children in
#: their order, each with the fewest and the most of it. Nothing else is allowed.
MANY = 10**9
SCHEMA: dict[str, tuple[set[str], set[str], list[tuple[str, int, int]]]] = {
    "testsuites": (set(), set(), [("testsuite", 0, MANY)]),
    "testsuite": (
        {"package", "id", "name", "timestamp", "hostname", "tests", "failures", "errors", "time"},
        {"skipped"},
        [
            ("properties", 1, 1),
            ("testcase", 0, MANY),
            ("system-out", 1, 1),
            ("system-err", 1, 1),
        ],
    ),
    "properties": (set(), set(), [("property", 0, MANY)]),
    "property": ({"name", "value"}, set(), []),
    "testcase": (
        {"name", "classname", "time"},
        set(),
        [("skipped", 0, 1), ("error", 0, 1), ("failure", 0, 1)],
    ),
    "skipped": (set(), {"message"}, []),
    "error": ({"type"}, {"message"}, []),
    "failure": ({"type"}, {"message"}, []),
    "system-out": (set(), set(), []),
    "system-err": (set(), set(), []),
}


def check(element: ET.Element) -> None:
    """Fail where an element and what is in it break the schema."""
    needed, allowed, children = SCHEMA[element.tag]
    assert needed <= element.attrib.keys() <= needed | allowed, element.tag
    order = [name for name, _, _ in children]
    places = [order.index(child.tag) for child in element]
    assert places == sorted(places), element.tag
    for name, least, most in children:
        assert least <= len(element.findall(name)) <= most, (element.tag, name)
    if element.tag == "testcase":
        assert len(element) <= 1
    for child in element:
        check(child)


def parsed(result: MatrixResult) -> ET.Element:
    return ET.fromstring(junit_xml(result))


def test_it_is_true_to_the_schema() -> None:
    root = parsed(make_matrix())
    check(root)
    suites = root.findall("testsuite")
    assert [suite.get("id") for suite in suites] == [str(i) for i in range(6)]
    for suite in suites:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.attrib["timestamp"])
        assert float(suite.attrib["time"]) >= 0.0


def test_a_scenario_is_a_suite_and_a_cell_is_a_case() -> None:
    root = parsed(make_matrix())
    suite = root.findall("testsuite")[2]
    assert suite.get("name") == "severe-thermal"
    counts = [suite.get(name) for name in ("tests", "failures", "errors", "skipped")]
    assert counts == ["3", "2", "0", "0"]
    names = [case.get("name") for case in suite.findall("testcase")]
    assert names == [f"Severe thermal restriction [seed {seed}]" for seed in (1, 2, 3)]


def test_a_failure_says_why_in_numbers_and_how_to_run_it_alone() -> None:
    failure = parsed(make_matrix()).findall(".//failure")[0]
    assert failure.attrib["message"].startswith("site_w is never over its budget: 5.2 kW over")
    text = failure.text or ""
    assert "failed: gpu_temp_c is never above 87 °C for 60 s: 91.4 °C at most" in text
    assert "passed: running_gpus recovers" in text
    assert "python -m lab matrix run --scenario severe-thermal --seed 1" in text


def test_what_was_not_run_is_skipped_with_the_reason_and_never_passes() -> None:
    root = parsed(make_matrix())
    skipped = root.findall(".//skipped")
    assert len(skipped) == 2
    assert "no network namespaces" in skipped[0].attrib["message"]


def test_what_broke_is_an_error() -> None:
    cell = make_cell(verdict=Verdict.ERROR)
    result = make_result(
        subject="x", kind=SubjectKind.COMMAND, at="2026-11-20T20:50:00Z", cells=[cell]
    )
    (error,) = parsed(result).findall(".//error")
    assert error.get("message") == "the run broke: MemoryError"


@given(st.text(), st.text())
def test_any_text_of_a_job_makes_a_document(said: str, log: str) -> None:
    # A job writes what it likes, also what XML cannot hold.
    cell = make_cell(
        over=0.1, log=log, series=[], checks=[Check(text=said, verdict=Verdict.FAILED)], why=said
    )
    result = make_result(
        subject=said, kind=SubjectKind.COMMAND, at="2026-11-20T20:50:00Z", cells=[cell]
    )
    check(parsed(result))
