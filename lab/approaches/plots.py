"""Plots of a comparison as SVG that stands by itself, and follows light and dark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lab.approaches.approaches import APPROACHES
from lab.approaches.figures import Figures, Seen
from lab.approaches.table import by_approach, mean_of
from lab.matrix.report.markup import Markup, el, joined
from lab.matrix.report.scales import ticks
from lab.matrix.report.words import number

__all__ = ["bars", "power"]

#: Of text on its ground at least 4.5 to 1, of lines 3 to 1, in both.
_STYLE = """
svg{font:12px system-ui,sans-serif;background:#fff;color:#1b1f24}
text{fill:currentColor}.dim{fill:#57606a}.title{font-weight:600}
.grid{stroke:#d0d7de}.budget{stroke:#b3261e;stroke-width:1.5;stroke-dasharray:5 3}
.a{stroke:#0b62b5}.b{stroke:#8a5a00}.line{fill:none;stroke-width:1.2}
.bar{fill:#0b62b5}.bad{fill:#b3261e}
@media (prefers-color-scheme:dark){svg{background:#0d1117;color:#e6edf3}.dim{fill:#9da7b1}
.grid{stroke:#30363d}.budget{stroke:#ff8a80}.a{stroke:#6cb6ff}.b{stroke:#e0a84b}
.bar{fill:#6cb6ff}.bad{fill:#ff8a80}}
"""
_TITLES = {each.name: each.title for each in APPROACHES}
_WIDTH = 760


def power(seen: Mapping[str, Seen], *, hours: float) -> str:
    """Return plots of the use of budgets, a panel for each approach, by name."""
    panel, left, gap = 84, 46, 44
    high = max(
        1.05,
        *(max(share, default=0.0) for one in seen.values() for share in one.shares.values()),
    )
    parts = [
        _panel(_TITLES[name], one, (left, 26 + place * (panel + gap)), panel, high, hours)
        for place, (name, one) in enumerate(seen.items())
    ]
    height = 26 + len(seen) * (panel + gap) + 26
    first = next(iter(seen.values()), None)
    lines = list(first.shares) if first else []
    key = [
        el("text", each, x=left + 26 + 120 * place, y=height - 10, class_="dim")
        for place, each in enumerate(lines)
    ]
    swatches = [
        el(
            "line", x1=left + 120 * place, x2=left + 20 + 120 * place, y1=height - 14,
            y2=height - 14, class_=f"line {'ab'[place % 2]}",
        )
        for place in range(len(lines))
    ]  # fmt: skip
    said = "Power as a share of budgets over the run, by approach."
    return _drawing(height, said, joined(*parts, *key, *swatches))


def _panel(
    title: str, one: Seen, corner: tuple[int, int], size: int, high: float, hours: float
) -> Markup:
    left, top = corner
    width = _WIDTH - left - 14

    def x(t_s: float) -> float:
        return left + width * t_s / (hours * 3600.0)

    def y(share: float) -> float:
        return top + size * (1.0 - share / high)

    lines = [
        joined(
            el("line", x1=left, x2=left + width, y1=_px(y(tick)), y2=_px(y(tick)), class_="grid"),
            el("text", f"{100 * tick:.0f} %", x=left - 6, y=_px(y(tick) + 4), text_anchor="end",
               class_="dim"),
        )
        for tick in (0.0, 0.5, 1.0)
    ]  # fmt: skip
    curves = [
        el(
            "polyline",
            points=" ".join(
                f"{_px(x(t))},{_px(y(v))}" for t, v in _thinned(one.t_s, shares, width)
            ),
            class_=f"line {'ab'[place % 2]}",
        )
        for place, shares in enumerate(one.shares.values())
    ]
    budget = el("line", x1=left, x2=left + width, y1=_px(y(1.0)), y2=_px(y(1.0)), class_="budget")
    return joined(
        el("text", title, x=left, y=top - 8, class_="title"), *lines, *curves, budget,
        *(
            el("text", f"{hour:g} h", x=_px(x(hour * 3600.0)), y=top + size + 14,
               text_anchor="middle", class_="dim")
            for hour in ticks(0.0, hours, 7)
        ),
    )  # fmt: skip


def _thinned(
    t_s: Sequence[float], values: Sequence[float], width: float
) -> list[tuple[float, float]]:
    """Return the largest value of each pixel, so that no peak over a budget is lost."""
    step = max(1, len(t_s) // int(width))
    return [
        (t_s[at], max(values[at : at + step])) for at in range(0, min(len(t_s), len(values)), step)
    ]


#: What the bars show: title, value, whether it is something bad.
_BARS = (
    ("Work done, GPU h", lambda each: each.work_gpu_h, False),
    ("Unexpected throttle, GPU h", lambda each: each.unexpected_throttle_gpu_h, True),
    ("Over some budget, s", lambda each: each.over_budget_s, True),
    ("Wait, 95th percentile, h", lambda each: each.wait_p95_s / 3600.0, True),
    ("Work per kWh, GPU h", lambda each: each.work_per_kwh, False),
)


def bars(runs: Sequence[Figures]) -> str:
    """Return the main figures of each approach side by side, means over seeds."""
    found = by_approach(runs)
    row, left, top = 18, 220, 24
    parts, at = [], top
    for title, value, is_bad in _BARS:
        values = {name: mean_of(of_it, value) for name, of_it in found.items()}
        most = max(*values.values(), 1e-12)
        parts.append(el("text", title, x=10, y=at, class_="title"))
        for place, (name, each) in enumerate(values.items()):
            y = at + 8 + place * row
            length = max((_WIDTH - left - 90) * each / most, 1.0)
            parts += [
                el("text", _TITLES[name], x=left - 8, y=y + 12, text_anchor="end", class_="dim"),
                el("rect", x=left, y=y + 2, width=_px(length), height=row - 5,
                   class_="bad" if is_bad else "bar"),
                el("text", number(each), x=_px(left + length + 6), y=y + 12),
            ]  # fmt: skip
        at += len(values) * row + 36
    return _drawing(at - 10, "Main figures of each approach, as bars.", joined(*parts))


def _drawing(height: int, said: str, inside: Markup) -> str:
    style = Markup(f"<style>{_STYLE}</style>")
    drawing = el(
        "svg", el("title", said), style, inside, xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {_WIDTH} {height}", role="img",
    )  # fmt: skip
    return f"{drawing}\n"


def _px(value: float) -> str:
    return f"{value:.1f}"
