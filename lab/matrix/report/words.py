"""Numbers and verdicts as people read them, the same in every report. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lab.matrix.result import Verdict

__all__ = [
    "DASH",
    "SYMBOLS",
    "VERDICTS",
    "change",
    "clock",
    "count",
    "headline",
    "length",
    "number",
    "quantity",
    "scaled",
    "words_of",
]

DASH = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"

#: Every verdict has a sign and a word: color alone says nothing to many.
SYMBOLS = {
    Verdict.PASSED: "\N{CHECK MARK}",
    Verdict.FAILED: "\N{MULTIPLICATION X}",
    Verdict.ERROR: "!",
    Verdict.NOT_RUN: DASH,
    Verdict.NOT_MEASURED: "?",
}
VERDICTS = {
    Verdict.PASSED: "passed",
    Verdict.FAILED: "failed",
    Verdict.ERROR: "broke",
    Verdict.NOT_RUN: "not run",
    Verdict.NOT_MEASURED: "not measured",
}

#: What a unit at the end of a name is in words: of most it is clear what is measured.
_UNITS = {"w": "power", "c": "", "s": "", "j": "", "ms": "", "kwh": "", "mhz": "", "share": ""}
_IN_CAPITALS = {"gpu": "GPU", "gpus": "GPUs", "cpu": "CPU", "wan": "WAN", "co2": "CO2"}

_PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
#: Units of which there may be thousands.
_PREFIXED = {"W", "J", "bit/s", "byte/s", "Hz"}
#: What is better said otherwise: the unit, how many of it there are in one of the first, from where
_INSTEAD = {"J": ("kWh", 3.6e6), "GPU s": ("GPU h", 3600.0), "gCO2": ("kg CO2", 1000.0)}


def number(value: float | None, figures: int = 3) -> str:
    """Return a number with so many significant figures, but no digit before the point lost."""
    if value is None or not math.isfinite(value):
        return DASH if value is None or math.isnan(value) else "without end"
    if value == 0:
        return "0"
    digits = max(0, figures - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{min(digits, 6)}f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return text.replace("-", MINUS) if text not in ("0", "-0") else "0"


def scaled(peak: float, unit: str) -> tuple[float, str]:
    """Return a divisor for values, and their unit then, so that ``peak`` is easy to read."""
    if unit == "share":
        return 0.01, "%"
    if unit in _INSTEAD:
        other, size = _INSTEAD[unit]
        return size, other
    if unit in _PREFIXED:
        for factor, prefix in _PREFIXES:
            if abs(peak) >= factor:
                return factor, prefix + unit
    return 1.0, unit


def quantity(value: float | None, unit: str) -> str:
    """Return a value with its unit: ``52.3 kW``, ``4 min 10 s``, ``3.2 %``."""
    if value is None or math.isnan(value):
        return DASH
    if unit == "s":
        return length(value)
    size, shown = scaled(value, unit)
    return f"{number(value / size)} {shown}".rstrip()


def length(seconds: float) -> str:
    """Return a length of time: ``0.35 s``, ``45 s``, ``4 min 10 s``, ``2 h 5 min``, ``3.1 d``."""
    if not math.isfinite(seconds):
        return "without end"
    if seconds < 0:
        return MINUS + length(-seconds)
    if seconds < 99.5:
        return f"{number(seconds)} s"
    minutes, rest_s = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest_s} s" if rest_s else f"{minutes} min"
    hours, minutes = divmod(round(seconds / 60), 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{number(seconds / 86_400)} d"


def clock(seconds: float) -> str:
    """Return a moment of a run: ``4:10``, ``1:02:30``."""
    minutes, rest_s = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest_s:02}" if hours else f"{minutes}:{rest_s:02}"


def change(before: float, after: float, unit: str) -> str:
    """Return how a value changed: ``+4.2 kW``, with the share where that says more."""
    diff = after - before
    if diff == 0:
        return "the same"
    sign = "+" if diff > 0 else MINUS
    if unit == "share":
        # A percentage of a percentage would be read as either.
        return f"{sign}{number(abs(diff) * 100)} points"
    text = f"{sign}{quantity(abs(diff), unit)}"
    if before:
        text += f" ({sign}{number(abs(diff / before) * 100)} %)"
    return text


def count(amount: int, one: str, many: str = "") -> str:
    """Return ``1 cell`` or ``3 cells``."""
    return f"{amount:,} {one if amount == 1 else many or one + 's'}"


def words_of(name: str) -> str:
    """Return the name of a series, a measure or a kind of fault in words: ``site power``.

    The unit at its end is left out, since reports show it beside the values.
    """
    *first, last = name.removesuffix("_gpu_h").split("_")
    unit = _UNITS.get(last) if first else None
    parts = [*first, last] if unit is None else [*first, unit]
    return " ".join(_IN_CAPITALS.get(part, part) for part in parts if part)


def headline(subject: str, verdicts: Sequence[Verdict]) -> str:
    """Return the one sentence that a whole matrix comes to."""
    run = [each for each in verdicts if each != Verdict.NOT_RUN]
    if not run:
        return f"Nothing could be run on {subject}."
    bad = [each for each in run if each not in (Verdict.PASSED, Verdict.NOT_MEASURED)]
    unseen = run.count(Verdict.NOT_MEASURED)
    if unseen and not bad:
        return f"Of {subject}, {unseen} of {count(len(run), 'cell')} could not be measured."
    if len(verdicts) == 1:
        return f"{subject} {'fails' if bad else 'passes'} its only cell."
    if not bad:
        whole = "all" if len(run) == len(verdicts) else "all that could be run:"
        return f"{subject} passes {whole} {count(len(run), 'cell')}."
    return f"{subject} fails {len(bad)} of {count(len(run), 'cell')}."
