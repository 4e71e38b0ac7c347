"""Rules of the style sheet and the templates that nothing else would notice."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.conf import settings

from dashboard import scale
from telemetry.models import ThrottleEvent

ROOT = Path(settings.BASE_DIR)
CSS = (ROOT / "static/css/headroom.css").read_text()
TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))

_TOKEN = re.compile(r"^\s*(--[\w-]+):\s*([^;]+);", re.MULTILINE)


def _tokens(selector: str) -> dict[str, str]:
    start = CSS.index(selector)
    return dict(_TOKEN.findall(CSS[start : CSS.index("}", start)]))


LIGHT = _tokens(":root {")
DARK = _tokens(':root[data-theme="dark"] {')


def test_dark_by_choice_and_dark_by_the_system_are_the_same() -> None:
    assert _tokens(':root:not([data-theme="light"]) {') == DARK


def test_dark_sets_every_color_that_is_not_the_same_in_both() -> None:
    shared = {f"--m{level}" for level in range(scale.TOP + 1)} | {"--gap", "--font", "--mono"}
    assert set(LIGHT) - set(DARK) == shared


def _luminance(color: str) -> float:
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    bright, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("tokens", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("text", "ground"),
    [
        *((t, g) for t in ("--text", "--dim", "--link") for g in ("--bg", "--surface")),
        ("--accent", "--accent-bg"),
        ("--bad-text", "--bad-bg"),
        ("--bad-text", "--surface"),
        ("--bad-text", "--bg"),
        ("--warn-text", "--warn-bg"),
        ("--warn-text", "--surface"),
        ("--text", "--hatch-bg"),
        ("--text", "--raised"),
        ("--dim", "--raised"),
    ],
)
def test_text_has_the_contrast_that_aa_asks_for(
    tokens: dict[str, str], text: str, ground: str
) -> None:
    assert _contrast(tokens[text], tokens[ground]) >= 4.5


@pytest.mark.parametrize("tokens", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("mark", ["--edge", "--focus", "--bad", "--series-1", "--limit"])
def test_marks_stand_out_from_their_ground(tokens: dict[str, str], mark: str) -> None:
    assert _contrast(tokens[mark], tokens["--surface"]) >= 3


@pytest.mark.parametrize("css", [*scale.CLASSES[:-2]])
def test_numbers_are_legible_on_every_level(css: str) -> None:
    found = re.search(rf"^\.{css} \{{ --level: ([^;]+); --on-level: (#\w+); \}}", CSS, re.MULTILINE)
    assert found is not None
    level = LIGHT.get(found[1].removeprefix("var(").removesuffix(")"), found[1])
    assert _contrast(level, found[2]) >= 4.5


def test_the_scale_gets_darker_with_every_step() -> None:
    brightness = [_luminance(LIGHT[f"--m{level}"]) for level in range(scale.TOP + 1)]
    assert brightness == sorted(brightness, reverse=True)


def test_every_throttle_cause_has_a_color_and_a_pattern_of_its_own() -> None:
    tokens = [ThrottleEvent(cause=cause).cause_token for cause in ThrottleEvent.Cause.values]
    patterns = []
    for token in tokens:
        assert f"--cause-{token}" in LIGHT
        rule = CSS[CSS.index(f".cause-{token} {{") :]
        patterns.append(re.search(r"--cause-pattern: ([^;]+);", rule[: rule.index("}")]))
    shapes = [found[1] if found else "solid" for found in patterns]
    assert len(set(shapes)) == len(tokens)


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: str(path.relative_to(ROOT)))
def test_templates_have_nothing_inline(path: Path) -> None:
    text = path.read_text()
    markup = re.sub(r"{% comment %}.*?{% endcomment %}", "", text, flags=re.DOTALL)
    assert not re.search(r"\sstyle\s*=", markup)
    assert not re.search(r"\son\w+\s*=\s*[\"']", markup)
    assert not re.search(r"<style|javascript:", markup)
    for script in re.findall(r"<script\b[^>]*>", markup):
        assert " src=" in script or 'type="application/json"' in script


@pytest.mark.parametrize(
    "path",
    [p for p in TEMPLATES if {"dashboard", "inc"} & set(p.parts)],
    ids=lambda path: path.name,
)
def test_templates_open_with_what_they_need(path: Path) -> None:
    head = path.read_text().removeprefix('{% extends "base.html" %}').lstrip()
    assert head.startswith("{% comment %}")


def test_hardly_a_line_of_the_templates_is_long() -> None:
    """The formatter breaks lines at 100 characters, but no text in ``<pre>`` or attributes."""
    lengths = [len(line) for path in TEMPLATES for line in path.read_text().splitlines()]
    assert sum(length > 120 for length in lengths) < 0.005 * len(lengths)
