"""A comparison as a value, as a page, and as files."""

from __future__ import annotations

from pathlib import Path

import msgspec

from lab.approaches import claims, plots, table
from lab.approaches.approaches import APPROACHES
from lab.approaches.figures import Anchor, Figures, Seen

__all__ = ["Comparison", "dumps", "loads", "page", "write"]


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A comparison: jobs, fleet, command line, and the figures of all runs."""

    #: sentences on jobs and fleet
    jobs: str
    fleet: str
    #: command line that does it again
    again: str
    hours: float
    runs: list[Figures]
    #: by approach, of the first seed
    seen: dict[str, Seen]
    anchors: list[Anchor] = []


def dumps(comparison: Comparison) -> bytes:
    """Return the comparison as JSON. The same comparison gives the same bytes."""
    return msgspec.json.format(msgspec.json.encode(comparison), indent=1) + b"\n"


def loads(text: bytes) -> Comparison:
    """Return the comparison that :func:`dumps` wrote. Raises ``msgspec.ValidationError``."""
    return msgspec.json.decode(text, type=Comparison)


def write(comparison: Comparison, folder: Path) -> list[Path]:
    """Write figures, page and plots into a folder; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        "figures.json": dumps(comparison),
        "index.md": page(comparison).encode(),
        "power.svg": plots.power(comparison.seen, hours=comparison.hours).encode(),
        "bars.svg": plots.bars(comparison.runs).encode(),
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in files]


def page(comparison: Comparison) -> str:
    """Return the page that shows a comparison, beside its plots."""
    seeds = sorted({run.seed for run in comparison.runs})
    several = ", mean, and least to greatest," if len(seeds) > 1 else ""
    parts = [
        "# Approaches compared",
        f"Made by `{comparison.again}`; do not edit. What to make of it: "
        "[Approaches to limits](../../explanation/approaches.md).",
        comparison.jobs,
        comparison.fleet,
        "\n".join(f"- **{each.title}**: {each.said}." for each in APPROACHES),
        f"## Figures{several} of seed{'s' if len(seeds) > 1 else ''} " + ", ".join(map(str, seeds)),
        table.as_markdown(comparison.runs).rstrip(),
        "Seconds over a budget count when any rack, power domain or site truly draws more than it "
        "may. Throttling is unexpected where the hardware protects itself, and expected under a "
        "cap that somebody set.",
        "![Main figures of each approach](bars.svg)",
        "![Power over the run](power.svg)",
        "## What is said of them",
        claims.as_markdown(comparison.runs).rstrip(),
    ]
    if comparison.anchors:
        parts += ["## Beside what was published", _anchors(comparison.anchors).rstrip()]
    digests = ", ".join(f"{run.approach}/{run.seed} `{run.digest[:12]}`" for run in comparison.runs)
    parts += ["## Digests", f"The same seed gives the same run: {digests}."]
    return "\n\n".join(parts) + "\n"


def _anchors(anchors: list[Anchor]) -> str:
    lines = ["| | published | here | what differs |", "|---|---|---|---|"]
    lines += [
        f"| [{each.name}]({each.source}) | {each.published} | {each.here} | {each.differs} |"
        for each in anchors
    ]
    return "\n".join(lines) + "\n"
