"""The result as JUnit XML, true to the schema of Ant's JUnitReport, which every CI reads. Pure.

One suite for each scenario, one case for each cell. What was not run or
not measured is skipped, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree as ET

from lab.matrix.report import words
from lab.matrix.result import Cell, MatrixResult, Verdict

__all__ = ["junit_xml"]

#: What XML cannot hold, however it is escaped.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_OUTCOMES = {
    Verdict.FAILED: "failure",
    Verdict.ERROR: "error",
    Verdict.NOT_RUN: "skipped",
    Verdict.NOT_MEASURED: "skipped",
}


def junit_xml(result: MatrixResult) -> bytes:
    """Return the document, as UTF-8."""
    root = ET.Element("testsuites")
    for number, scenario in enumerate(result.scenarios):
        cells = [cell for cell in result.cells if cell.scenario == scenario]
        _suite(root, result, number, cells)
    ET.indent(root)
    document: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _suite(root: ET.Element, result: MatrixResult, number: int, cells: Sequence[Cell]) -> None:
    first = cells[0]
    outcomes = [_OUTCOMES.get(cell.verdict) for cell in cells]
    suite = ET.SubElement(
        root,
        "testsuite",
        {
            "package": f"matrix.{result.kind}",
            "id": str(number),
            "name": _clean(first.scenario),
            # The schema wants no time zone: it is UTC.
            "timestamp": result.at[:19],
            "hostname": _clean(result.machine.get("host", "localhost")),
            "tests": str(len(cells)),
            "failures": str(outcomes.count("failure")),
            "errors": str(outcomes.count("error")),
            "skipped": str(outcomes.count("skipped")),
            "time": _seconds(sum(cell.wall_s for cell in cells)),
        },
    )
    _properties(suite, result)
    for cell in cells:
        _case(suite, cell)
    out = "\n".join(f"seed {cell.seed}: {_numbers(cell)}" for cell in cells if cell.measures)
    ET.SubElement(suite, "system-out").text = _clean(out)
    logs = (f"seed {cell.seed}:\n{cell.log}" for cell in cells if _is_bad(cell) and cell.log)
    ET.SubElement(suite, "system-err").text = _clean("\n".join(logs))


def _properties(suite: ET.Element, result: MatrixResult) -> None:
    facts = {"subject": result.subject, "grade": result.grade.letter}
    properties = ET.SubElement(suite, "properties")
    for name, value in (facts | result.machine | result.versions).items():
        ET.SubElement(properties, "property", {"name": _clean(name), "value": _clean(value)})


def _case(suite: ET.Element, cell: Cell) -> None:
    case = ET.SubElement(
        suite,
        "testcase",
        {
            "name": f"{_clean(cell.title)} [seed {cell.seed}]",
            "classname": f"matrix.{_clean(cell.scenario)}",
            "time": _seconds(cell.wall_s),
        },
    )
    outcome = _OUTCOMES.get(cell.verdict)
    if outcome is None:
        return
    why = _clean(cell.why or words.VERDICTS[cell.verdict])
    # CI systems show the message as one line, and the text under it.
    found = ET.SubElement(case, outcome, {"message": why})
    if outcome != "skipped":
        found.set("type", f"matrix.{cell.verdict}")
        found.text = _clean("\n".join([why, "", *_checks(cell), *_cause(cell), *_again(cell)]))


def _checks(cell: Cell) -> list[str]:
    return [
        f"{words.VERDICTS[check.verdict]}: {check.text}{f': {check.said}' if check.said else ''}"
        for check in cell.checks
    ]


def _cause(cell: Cell) -> list[str]:
    return ["", cell.cause] if cell.cause else []


def _again(cell: Cell) -> list[str]:
    return ["", f"again: {cell.again}"] if cell.again else []


def _numbers(cell: Cell) -> str:
    return ", ".join(
        f"{words.words_of(each.name)} {words.quantity(each.value, each.unit)}"
        for each in cell.measures
    )


def _is_bad(cell: Cell) -> bool:
    return cell.verdict in (Verdict.FAILED, Verdict.ERROR)


def _seconds(value: float) -> str:
    return f"{value:.3f}"


def _clean(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
