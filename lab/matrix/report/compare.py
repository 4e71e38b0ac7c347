"""Two results side by side: which measures the second has better, which worse, by how much. Pure.

Cells are matched by scenario and seed, so that every difference is between two runs of the same
conditions.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.matrix.report import words
from lab.matrix.report.html import counts
from lab.matrix.report.markdown import escaped, table
from lab.matrix.report.markup import Child, Markup, el, joined
from lab.matrix.report.page import page
from lab.matrix.result import Better, Cell, MatrixResult, Measure, Verdict

__all__ = [
    "CellPair",
    "Comparison",
    "Direction",
    "Shift",
    "changed_measures",
    "compare",
    "compared_html",
    "compared_markdown",
    "write_comparison",
]

#: Changes of the mean under this share of it are noise.
SAME_SHARE = 0.01
_RANK = {Verdict.PASSED: 1, Verdict.FAILED: 0, Verdict.ERROR: 0}


class Direction(enum.StrEnum):
    """Whether the second result is better or worse than the first."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "same"
    #: it is another one, and nothing says which is better
    OTHER = "other"


@dataclass(frozen=True)
class CellPair:
    """One cell in both results; None where it is in one only."""

    scenario: str
    title: str
    seed: int
    before: Cell | None
    after: Cell | None

    @property
    def direction(self) -> Direction:
        """Whether the verdict is better. A cell not run on either side cannot be compared."""
        if self.before is None or self.after is None:
            return Direction.OTHER
        if self.before.verdict == self.after.verdict:
            return Direction.SAME
        ranks = [_RANK.get(cell.verdict) for cell in (self.before, self.after)]
        if None in ranks:
            return Direction.OTHER
        before, after = (rank or 0 for rank in ranks)
        return _direction(after - before, Better.HIGHER)

    @property
    def why(self) -> str:
        """The failure after, or else the one before; "" where neither has one."""
        cells = [cell for cell in (self.after, self.before) if cell is not None and cell.why]
        return cells[0].why if cells else ""


@dataclass(frozen=True)
class Shift:
    """A measure of a scenario: its mean over the seeds that both results have."""

    scenario: str
    title: str
    name: str
    unit: str
    better: Better
    pairs: list[tuple[float, float]]

    @property
    def before(self) -> float:
        return math.fsum(before for before, _ in self.pairs) / len(self.pairs)

    @property
    def after(self) -> float:
        return math.fsum(after for _, after in self.pairs) / len(self.pairs)

    @property
    def direction(self) -> Direction:
        diff = self.after - self.before
        if abs(diff) <= SAME_SHARE * max(abs(self.before), abs(self.after)):
            return Direction.SAME
        return _direction(diff, self.better)

    @property
    def agreeing(self) -> int:
        """The number of seeds whose change has the direction of the mean's."""
        diff = self.after - self.before
        return sum((after - before) * diff > 0 for before, after in self.pairs)


@dataclass(frozen=True)
class Comparison:
    """Two results. ``before`` is the first one, which the second is measured against."""

    before: MatrixResult
    after: MatrixResult
    cells: list[CellPair]
    shifts: list[Shift]

    @property
    def better(self) -> list[CellPair]:
        return [pair for pair in self.cells if pair.direction is Direction.BETTER]

    @property
    def worse(self) -> list[CellPair]:
        return [pair for pair in self.cells if pair.direction is Direction.WORSE]

    @property
    def alone(self) -> list[CellPair]:
        """Cells that only one of the results has."""
        return [pair for pair in self.cells if pair.before is None or pair.after is None]

    @property
    def headline(self) -> str:
        """The one sentence that it comes to."""
        names = f"{self.after.subject} against {self.before.subject}"
        if not self.better and not self.worse:
            return f"{names}: no verdict is another."
        parts = [
            f"{words.count(len(pairs), 'cell')} {word}"
            for pairs, word in ((self.better, "better"), (self.worse, "worse"))
            if pairs
        ]
        return f"{names}: {', '.join(parts)}."


def compare(before: MatrixResult, after: MatrixResult) -> Comparison:
    """Compare two results, cell by cell and measure by measure."""
    cells = list(_pairs(before, after))
    return Comparison(before, after, cells, list(_shifts(cells)))


def _pairs(before: MatrixResult, after: MatrixResult) -> Iterator[CellPair]:
    first = {(cell.scenario, cell.seed): cell for cell in before.cells}
    second = {(cell.scenario, cell.seed): cell for cell in after.cells}
    for key in dict.fromkeys([*first, *second]):
        one, other = first.get(key), second.get(key)
        known = other or one
        if known is not None:
            yield CellPair(known.scenario, known.title, known.seed, one, other)


def _shifts(cells: Sequence[CellPair]) -> Iterator[Shift]:
    found: dict[tuple[str, str], Shift] = {}
    for pair in cells:
        if pair.before is None or pair.after is None:
            continue
        before = {each.name: each for each in pair.before.measures}
        for measure in pair.after.measures:
            was = before.get(measure.name)
            if was is None or was.value is None or measure.value is None:
                continue
            made = _shift(pair, measure)
            shift = found.setdefault((pair.scenario, measure.name), made)
            shift.pairs.append((was.value, measure.value))
    yield from found.values()


def _shift(pair: CellPair, measure: Measure) -> Shift:
    return Shift(pair.scenario, pair.title, measure.name, measure.unit, measure.better, [])


def _direction(diff: float, better: Better) -> Direction:
    if diff == 0:
        return Direction.SAME
    if better is Better.NEITHER:
        return Direction.OTHER
    return Direction.BETTER if (diff > 0) == (better is Better.HIGHER) else Direction.WORSE


def changed_measures(comparison: Comparison) -> list[Shift]:
    """Return the measures that changed: worse ones first."""
    order = [Direction.WORSE, Direction.BETTER, Direction.OTHER]
    changed = [shift for shift in comparison.shifts if shift.direction in order]
    return sorted(changed, key=lambda shift: order.index(shift.direction))


def write_comparison(comparison: Comparison, folder: Path) -> list[Path]:
    """Write a comparison as HTML and as Markdown into a folder, and return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    contents = {
        "comparison.html": compared_html(comparison),
        "comparison.md": compared_markdown(comparison),
    }
    for name, text in contents.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in contents]


# Markdown ----------------------------------------------------------------------------------------


def compared_markdown(comparison: Comparison) -> str:
    """Return the comparison as Markdown."""
    before, after = comparison.before, comparison.after
    names = [escaped(before.subject), escaped(after.subject)]
    lines = [
        f"## {escaped(comparison.headline)}",
        "",
        f"Grade {before.grade.letter} of {names[0]}, **{after.grade.letter}** of {names[1]}.",
        "",
    ]
    changed = [*comparison.worse, *comparison.better]
    if changed:
        rows = [_markdown_cell(pair) for pair in changed]
        lines += [*table(["cell", "", *names, "why"], rows), ""]
    shifts = changed_measures(comparison)
    if shifts:
        head = ["scenario", "measure", "", *names, "change", "seeds"]
        lines += [*table(head, [_markdown_shift(shift) for shift in shifts], numbers=4), ""]
    if comparison.alone:
        lines.append(f"In one result only: {words.count(len(comparison.alone), 'cell')}.")
    return "\n".join(lines).rstrip() + "\n"


def _markdown_cell(pair: CellPair) -> list[str]:
    return [
        f"{escaped(pair.title)}, seed {pair.seed}",
        f"**{pair.direction}**",
        *(_verdict_word(cell) for cell in (pair.before, pair.after)),
        escaped(pair.why),
    ]


def _markdown_shift(shift: Shift) -> list[str]:
    return [
        escaped(shift.title),
        words.words_of(shift.name),
        _shift_word(shift),
        words.quantity(shift.before, shift.unit),
        words.quantity(shift.after, shift.unit),
        words.change(shift.before, shift.after, shift.unit),
        f"{shift.agreeing} of {len(shift.pairs)}",
    ]


def _verdict_word(cell: Cell | None) -> str:
    return "not there" if cell is None else words.VERDICTS[cell.verdict]


def _shift_word(shift: Shift) -> str:
    return "" if shift.direction is Direction.OTHER else str(shift.direction)


# HTML --------------------------------------------------------------------------------------------


def compared_html(comparison: Comparison) -> str:
    """Return the comparison as one file for people."""
    return page(
        comparison.headline,
        "comparison of two matrices",
        _top(comparison),
        _verdicts(comparison),
        _measures(comparison),
    )


def _top(comparison: Comparison) -> Markup:
    before, after = comparison.before.grade.letter, comparison.after.grade.letter
    state = Verdict.FAILED if comparison.worse else Verdict.PASSED
    return el(
        "section",
        el("div", el("small", f"grade, was {before}"), after, class_="grade"
           if len(after) == 1 else "grade word"),
        el("h1", comparison.headline),
        el(
            "div",
            *(
                el("div", el("span", f"{name}: {result.subject}", class_="dim"), counts(result))
                for name, result in (("before", comparison.before), ("after", comparison.after))
            ),
            class_="more two",
        ),
        class_=f"verdict {state}",
        aria_label="Verdict",
    )  # fmt: skip


def _verdicts(comparison: Comparison) -> Markup:
    seeds = sorted({pair.seed for pair in comparison.cells})
    scenarios: dict[str, list[CellPair]] = {}
    for pair in comparison.cells:
        scenarios.setdefault(pair.scenario, []).append(pair)
    head = el(
        "tr",
        el("th", "scenario", scope="col"),
        *(el("th", f"seed {seed}", scope="col") for seed in seeds),
    )
    rows = (
        el(
            "tr",
            el("th", pairs[0].title, scope="row"),
            *(el("td", *(_pair(each) for each in pairs if each.seed == seed)) for seed in seeds),
        )
        for pairs in scenarios.values()
    )
    return _panel("Verdicts, before and after", "verdicts", el("thead", head), el("tbody", *rows))


def _pair(pair: CellPair) -> Markup:
    word: Child = None
    if pair.direction in (Direction.BETTER, Direction.WORSE):
        word = el("span", str(pair.direction), class_=str(pair.direction))
    same = pair.direction is Direction.SAME
    shown = [pair.after] if same else [pair.before, pair.after]
    badges = [_badge(cell) for cell in shown]
    arrow = joined(" ", el("span", "\N{RIGHTWARDS ARROW}", aria_label="then", role="img"), " ")
    return el(
        "span",
        badges[0],
        *(joined(arrow, badge) for badge in badges[1:]),
        word,
        class_="pair",
        title=pair.why or None,
    )


def _badge(cell: Cell | None) -> Markup:
    if cell is None:
        return el("span", "not there", class_="dim")
    sign = el("span", words.SYMBOLS[cell.verdict], aria_hidden="true")
    return el("span", sign, f" {words.VERDICTS[cell.verdict]}", class_=f"badge tag-{cell.verdict}")


def _measures(comparison: Comparison) -> Markup | None:
    shifts = changed_measures(comparison)
    if not shifts:
        return None
    head = el(
        "tr",
        el("th", "scenario", scope="col"),
        el("th", "measure", scope="col"),
        el("th", "", el("span", "direction", class_="visually-hidden"), scope="col"),
        *(
            el("th", name, scope="col", class_="num")
            for name in ("before", "after", "change", "seeds that agree")
        ),
    )
    rows = (
        el(
            "tr",
            el("th", shift.title, scope="row"),
            el("td", words.words_of(shift.name)),
            el("td", _shift_word(shift), class_=_shift_word(shift) or None),
            el("td", words.quantity(shift.before, shift.unit), class_="num"),
            el("td", words.quantity(shift.after, shift.unit), class_="num"),
            el("td", words.change(shift.before, shift.after, shift.unit), class_="num"),
            el("td", f"{shift.agreeing} of {len(shift.pairs)}", class_="num"),
        )
        for shift in shifts
    )
    return _panel("Measures that changed", "measures", el("thead", head), el("tbody", *rows))


def _panel(title: str, key: str, *table_parts: Child) -> Markup:
    return el(
        "section",
        el("div", el("h2", title, id=key), class_="panel-head"),
        el(
            "div",
            el("table", *table_parts),
            class_="scroll",
            tabindex=0,
            role="group",
            aria_labelledby=key,
        ),
        class_="panel",
        aria_labelledby=key,
    )
