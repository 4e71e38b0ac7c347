"""The frame of a report in HTML: one file with all that it needs, and nothing fetched. Pure."""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files

from lab.matrix.report.markup import Child, Markup, el, joined

__all__ = ["page"]

_KEYS = (
    ("n p", "next and previous cell that did not pass"),
    ("m", "to the matrix; arrows move in it, Enter opens a cell"),
    ("f", "only what did not pass, or all"),
    ("\N{LEFTWARDS ARROW} \N{RIGHTWARDS ARROW}", "on a plot: read its values"),
    ("t", "light or dark"),
    ("?", "these keys"),
)


def page(title: str, kind: str, *body: Child) -> str:
    """Return a document. ``title`` is that of the window, ``kind`` names the kind of report."""
    style, script = _file("page.css"), _file("page.js")
    # Not even a result that somebody has tampered with makes the page run or fetch anything.
    policy = f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}"
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=policy),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("title", title),
        el("style", Markup(style)),
    )
    return joined(
        Markup("<!doctype html>\n"),
        el(
            "html",
            head,
            el(
                "body",
                _mast(kind),
                el("main", *body, id="main", tabindex=-1),
                _help(),
                el("script", Markup(script)),
            ),
            lang="en",
        ),
        "\n",
    )


@cache
def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _mast(kind: str) -> Markup:
    return joined(
        el("a", "Skip to the result", class_="skip", href="#main"),
        el(
            "header",
            el("p", "Headroom ", el("span", kind, class_="dim"), class_="brand"),
            el(
                "div",
                el("button", "Theme", id="theme", type="button"),
                el("button", "Keys ", el("kbd", "?"), id="help", type="button"),
                class_="tools",
                hidden=True,
            ),
            class_="mast",
        ),
    )


def _help() -> Markup:
    rows = (
        joined(
            el("dt", *_spaced([el("kbd", key) for key in keys.split()])),
            el("dd", what),
        )
        for keys, what in _KEYS
    )
    return el(
        "dialog",
        el("h2", "Keys", id="keys-title"),
        el("dl", *rows),
        el("button", "Close", id="keys-close", type="button"),
        id="keys",
        aria_labelledby="keys-title",
    )


def _spaced(parts: list[Markup]) -> list[Child]:
    spaced: list[Child] = []
    for part in parts:
        spaced += [" ", part] if spaced else [part]
    return spaced
