"""The report as one file for people: the verdict, a cell for each run, why, and plots. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

from lab.matrix.report import words
from lab.matrix.report.failures import Failure, failures
from lab.matrix.report.markup import Child, Markup, el
from lab.matrix.report.numbers import Row, columns, row_of, rows_of
from lab.matrix.report.page import page
from lab.matrix.report.plots import figures
from lab.matrix.result import Cell, Check, MatrixResult, SubjectKind, Verdict, verdict_of

__all__ = ["counts", "html", "masthead"]

#: Measures that stand in the matrix, beside the cells.
_COLUMNS = 4
_KINDS = {SubjectKind.POLICY: "policy on the twin", SubjectKind.COMMAND: "command on a machine"}


@dataclass(frozen=True)
class _Group:
    """The cells of one scenario, with their ids in the page."""

    key: str
    cells: list[tuple[str, Cell]]

    @property
    def first(self) -> Cell:
        return self.cells[0][1]

    @property
    def has_all_passed(self) -> bool:
        return all(cell.verdict == Verdict.PASSED for _, cell in self.cells)


def html(result: MatrixResult) -> str:
    """Return the report of one result."""
    groups = _groups(result)
    return page(
        f"{result.grade.letter}: {result.subject}",
        "constraint matrix",
        masthead(result),
        _matrix(result, groups),
        _whys(result, groups),
        *(_scenario(group) for group in groups),
    )


def _groups(result: MatrixResult) -> list[_Group]:
    found: dict[str, list[tuple[str, Cell]]] = {name: [] for name in result.scenarios}
    for i, cell in enumerate(result.cells):
        found[cell.scenario].append((f"cell-{i}", cell))
    return [_Group(f"scenario-{i}", cells) for i, cells in enumerate(found.values())]


# The top -----------------------------------------------------------------------------------------


def masthead(result: MatrixResult) -> Markup:
    """Return the verdict and the grade, for one glance, and the subject of the result."""
    grade = result.grade
    is_letter = len(grade.letter) == 1
    return el(
        "section",
        el(
            "div",
            el("small", "grade"),
            grade.letter,
            class_="grade" if is_letter else "grade word",
        ),
        el("h1", words.headline(result.subject, [cell.verdict for cell in result.cells])),
        el("div", counts(result), _facts(result), class_="more"),
        class_=f"verdict {result.verdict}",
        aria_label="Verdict",
    )


def counts(result: MatrixResult) -> Markup:
    """Return how many cells there are of each verdict."""
    grade = result.grade
    amounts = {
        Verdict.PASSED: grade.passed,
        Verdict.FAILED: grade.failed,
        Verdict.ERROR: grade.errors,
        Verdict.NOT_MEASURED: grade.not_measured,
        Verdict.NOT_RUN: grade.not_run,
    }
    return el(
        "ul",
        *(
            el(
                "li",
                el("span", words.SYMBOLS[verdict], aria_hidden="true"),
                f" {amount} {words.VERDICTS[verdict]}",
                class_=f"tag-{verdict}",
            )
            for verdict, amount in amounts.items()
            if amount
        ),
        class_="counts",
    )


def _facts(result: MatrixResult) -> Markup:
    facts = {
        "what": _KINDS[result.kind],
        "when": result.at.replace("T", " ").replace("Z", " UTC"),
        "scenarios": f"{len(result.scenarios)}",
        "seeds": f"{len(result.seeds)}",
    }
    simulated_s = sum(cell.simulated_s for cell in result.cells)
    wall_s = sum(cell.wall_s for cell in result.cells)
    if wall_s:
        facts["ran"] = f"{words.length(simulated_s)} in {words.length(wall_s)}"
    facts |= result.machine | result.versions
    return el(
        "dl",
        *(el("div", el("dt", name), el("dd", value)) for name, value in facts.items()),
        class_="facts",
    )


# Why ---------------------------------------------------------------------------------------------


def _whys(result: MatrixResult, groups: Sequence[_Group]) -> Markup | None:
    keys = {id(cell): key for group in groups for key, cell in group.cells}
    found = failures(result)
    if not found:
        return None
    items = (
        el(
            "li",
            el(
                "p",
                _badge(failure.verdict),
                " ",
                el("span", failure.title, class_="dim"),
                Markup("<br>"),
                el("span", failure.text, class_="why-text"),
            ),
            el("div", *_seen(failure, keys), class_="why-seen"),
        )
        for failure in found
    )
    title = _why_title({failure.verdict for failure in found})
    return el(
        "section",
        el("div", el("h2", title, id="why-title"), class_="panel-head"),
        el("ul", *items, class_="whys"),
        class_="panel",
        id="why",
        aria_labelledby="why-title",
    )


def _why_title(verdicts: Set[Verdict]) -> str:
    if verdicts & {Verdict.FAILED, Verdict.ERROR}:
        return "What failed, and by how much"
    if Verdict.NOT_MEASURED in verdicts:
        return "What could not be measured"
    return "What could not be run"


def _seen(failure: Failure, keys: dict[int, str]) -> Iterator[Markup]:
    """Yield the values that the cells had instead; a value that several share is given once."""
    by_text: dict[str, list[Cell]] = {}
    for cell, seen in failure.seen:
        by_text.setdefault(seen, []).append(cell)
    for seen, cells in by_text.items():
        links = [el("a", f"seed {cell.seed}", href=f"#{keys[id(cell)]}") for cell in cells]
        yield el("span", *(child for link in links for child in (link, " ")), class_="seeds")
        yield el("span", seen)


# The matrix --------------------------------------------------------------------------------------


def _matrix(result: MatrixResult, groups: Sequence[_Group]) -> Markup:
    seeds = result.seeds
    shown = columns(result.cells, _COLUMNS)
    head = el(
        "tr",
        el("th", "scenario", scope="col"),
        *(el("th", f"seed {seed}", scope="col", class_="mark") for seed in seeds),
        *(el("th", words.words_of(name), scope="col", class_="num extra") for name in shown),
    )
    any_bad = not all(group.has_all_passed for group in groups)
    return el(
        "section",
        el(
            "div",
            el("h2", "Scenarios and seeds", id="matrix-title"),
            _filter() if any_bad else None,
            class_="panel-head",
        ),
        el(
            "div",
            el(
                "table",
                el("thead", head),
                el("tbody", *(_matrix_row(group, seeds, shown) for group in groups)),
                class_="matrix",
            ),
            class_="scroll",
            tabindex=0,
            role="group",
            aria_labelledby="matrix-title",
        ),
        class_="panel",
        id="matrix",
        aria_labelledby="matrix-title",
    )


def _filter() -> Markup:
    return el(
        "button",
        "Only what did not pass",
        id="only-bad",
        type="button",
        aria_pressed="false",
        hidden=True,
    )


def _matrix_row(group: _Group, seeds: Sequence[int], shown: Sequence[str]) -> Markup:
    return el(
        "tr",
        el(
            "th",
            el("a", group.first.title, href=f"#{group.key}"),
            el("span", group.first.scenario, class_="name"),
            _worst(group),
            scope="row",
        ),
        *(_marks(group, seed) for seed in seeds),
        *(_extra(group, name) for name in shown),
        class_="all-passed" if group.has_all_passed else None,
    )


def _worst(group: _Group) -> Markup | None:
    """Return why the first of the worst cells did not pass."""
    worst = verdict_of(cell.verdict for _, cell in group.cells)
    if worst == Verdict.PASSED:
        return None
    why = next(cell.why for _, cell in group.cells if cell.verdict == worst)
    return el("span", why, class_=f"row-why {worst}") if why else None


def _marks(group: _Group, seed: int) -> Markup:
    here = [(key, cell) for key, cell in group.cells if cell.seed == seed]
    return el("td", *(_mark(key, cell) for key, cell in here), class_="mark")


def _mark(key: str, cell: Cell) -> Markup:
    return el(
        "a",
        el("span", words.SYMBOLS[cell.verdict], class_="sign", aria_hidden="true"),
        el("span", words.VERDICTS[cell.verdict]),
        el("span", f"seed {cell.seed}", class_="seed"),
        href=f"#{key}",
        class_=f"tag-{cell.verdict}",
        title=cell.why or None,
    )


def _extra(group: _Group, name: str) -> Markup:
    row = row_of(name, [cell for _, cell in group.cells])
    return el("td", row.mean_said if row else words.DASH, class_="num extra")


# A scenario --------------------------------------------------------------------------------------


def _scenario(group: _Group) -> Markup:
    first = group.first
    title_id = f"{group.key}-title"
    # What is most wanted is open; all of it at once would be too much.
    opened = next((key for key, cell in group.cells if cell.verdict != Verdict.PASSED), None)
    passed = sum(cell.verdict == Verdict.PASSED for _, cell in group.cells)
    return el(
        "details",
        el(
            "summary",
            el("h2", first.title, id=title_id),
            el("span", f"{passed} of {words.count(len(group.cells), 'cell')} passed", class_="dim"),
        ),
        el("p", first.about, class_="about") if first.about else None,
        _measures([cell for _, cell in group.cells], title_id),
        *(_cell(key, cell, is_open=key == opened) for key, cell in group.cells),
        class_="scenario all-passed" if group.has_all_passed else "scenario",
        id=group.key,
        open=not group.has_all_passed,
    )


def _measures(cells: Sequence[Cell], title_id: str) -> Markup | None:
    rows = rows_of(cells)
    if not rows:
        return None
    several = len(cells) > 1
    head = el(
        "tr",
        el("th", "measure", scope="col"),
        *(el("th", f"seed {cell.seed}", scope="col", class_="num") for cell in cells),
        el("th", "mean", scope="col", class_="num") if several else None,
        el("th", "spread", scope="col", class_="num") if several else None,
        el("th", el("span", "what it says", class_="visually-hidden"), scope="col"),
    )
    return el(
        "div",
        el(
            "table",
            el("thead", head),
            el("tbody", *(_measure_row(row, several=several) for row in rows)),
            class_="measures",
        ),
        class_="scroll",
        tabindex=0,
        role="group",
        aria_labelledby=title_id,
    )


def _measure_row(row: Row, *, several: bool) -> Markup:
    return el(
        "tr",
        el("th", words.words_of(row.name), scope="row"),
        *(el("td", words.quantity(value, row.unit), class_="num") for value in row.values),
        el("td", row.mean_said, class_="num mean") if several else None,
        el("td", row.spread_said, class_="num") if several else None,
        el("td", row.said, class_="said"),
    )


# A cell ------------------------------------------------------------------------------------------


def _cell(key: str, cell: Cell, *, is_open: bool) -> Markup:
    return el(
        "details",
        el(
            "summary",
            _badge(cell.verdict),
            el("b", f"seed {cell.seed}", class_="nowrap"),
            el("span", cell.why, class_="why"),
            id=f"{key}-summary",
        ),
        el(
            "div",
            _checks(cell),
            _faults(cell),
            _cause(cell),
            _plots(key, cell),
            el("div", _again(cell), _log(cell), class_="two"),
            class_="cell-body",
        ),
        class_=f"cell {cell.verdict}",
        id=key,
        open=is_open,
    )


def _badge(verdict: Verdict) -> Markup:
    return el(
        "span",
        el("span", words.SYMBOLS[verdict], aria_hidden="true"),
        f" {words.VERDICTS[verdict]}",
        class_=f"badge tag-{verdict}",
    )


def _titled(title: str, *children: Child) -> Markup:
    return el("div", el("h4", title), *children)


def _checks(cell: Cell) -> Markup | None:
    if not cell.checks:
        return None
    # What is wrong first.
    ordered = sorted(cell.checks, key=lambda check: check.verdict == Verdict.PASSED)
    return _titled("What had to hold", el("ul", *map(_check, ordered), class_="checks"))


def _check(check: Check) -> Markup:
    is_bad = check.verdict in (Verdict.FAILED, Verdict.ERROR)
    return el(
        "li",
        _badge(check.verdict),
        el("span", check.text),
        el("span", check.said, class_="seen") if check.said else None,
        class_="bad" if is_bad else None,
    )


def _faults(cell: Cell) -> Markup | None:
    if not cell.spans:
        return None
    return _titled("What was wrong on purpose", el("ul", *_fault_items(cell), class_="faults"))


def _fault_items(cell: Cell) -> Iterator[Markup]:
    for span in cell.spans:
        when = f"{words.clock(span.from_s)}{words.DASH}{words.clock(span.to_s)}"
        name = words.words_of(span.name)
        yield el(
            "li",
            el("span", when, class_="when nowrap"),
            el("span", el("b", name), f": {span.said}" if span.said else None),
        )


def _cause(cell: Cell) -> Markup | None:
    """Return where the time of a command went, and why it took longer."""
    if not cell.parts:
        return None
    rows = (
        el(
            "tr",
            el("th", part.name, scope="row"),
            *(
                el("td", words.quantity(value, "s"), class_="num")
                for value in (part.took_s, part.usual_s, part.more_s)
            ),
        )
        for part in cell.parts
    )
    head = (
        el("th", "part", scope="col"),
        *(el("th", name, scope="col", class_="num") for name in ("here", "without faults", "more")),
    )
    return _titled(
        "Where the time went, and why",
        el("p", cell.cause, class_="cause") if cell.cause else None,
        el(
            "div",
            el("table", el("thead", el("tr", *head)), el("tbody", *rows), class_="measures parts"),
            class_="scroll",
            tabindex=0,
            role="group",
            aria_label="Where the time went, in parts",
        ),
    )


def _plots(key: str, cell: Cell) -> Markup | None:
    drawn = figures(cell, key)
    return el("div", drawn, class_="plots") if drawn else None


def _again(cell: Cell) -> Markup | None:
    if not cell.again:
        return None
    digest = el("p", "Digest ", el("code", cell.digest[:16]), class_="digest")
    return _titled(
        "This cell alone", el("pre", cell.again, class_="again"), digest if cell.digest else None
    )


def _log(cell: Cell) -> Markup | None:
    if not cell.log.strip():
        return None
    return _titled("Last lines", el("pre", cell.log, class_="log", tabindex=0))
