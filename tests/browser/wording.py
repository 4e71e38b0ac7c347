"""What no page may say to a person: words of the code, and figures beside wrong words."""

from __future__ import annotations

import re

from playwright.sync_api import Page

__all__ = ["read", "riddles"]

#: What a person reads as prose. Documents and forms are shown as they were written.
_PROSE = """
() => {
  const body = document.body.cloneNode(true);
  const written =
    "pre, code, .source, .diff, table.changes, textarea, input, select, script, style";
  body.querySelectorAll(written).forEach((each) => each.remove());
  document.body.after(body);
  const text = body.innerText;
  body.remove();
  return text;
}
"""
_THINGS = (
    "agents|cells|checkpoints|days|events|firings|GPUs|hours|incidents|jobs|links|minutes|mounts"
    "|nodes|others|phases|readings|racks|restrictions|runs|scopes|seconds|sites|starts|steps|times"
    "|versions|zones"
)
_THING = "GPU|job|rack|node|agent|incident|start"
_RIDDLES = {
    "a placeholder": r"\{[a-z_]\w*(:[^}]*)?\}",
    "a structure of Python": r"[{\[]'",
    "a truth value of Python": r"\b(True|False)\b",
    "a percentage without its space": r"\d%(?!\d)",  # "0-99%5" is an array of jobs
    "an exponent": r"\d[eE][+-]\d{2}\b",
    "no number": r"(?<![\w-])(nan|inf|NaN|Infinity)(?![\w:-])",
    "one of several": rf"(?<![\w.,:/-])1 ({_THINGS})\b",
    # "2 GPU", but neither "n2 GPU 3", which is a name, nor "2 job-minutes".
    "several of one": rf"(?<![\w.,:/#-])([2-9]|[1-9]\d+) ({_THING})\b(?![\w'-]| \d)",
}


def read(page: Page) -> str:
    """Return what stands on a page in prose: without what is shown as it was written."""
    text: str = page.evaluate(_PROSE)
    return text


def riddles(text: str) -> list[str]:
    """Return what of a text a person cannot read, each with its kind and its surroundings."""
    return [
        f"{kind}: …{text[max(match.start() - 40, 0) : match.end() + 40]!r}"
        for kind, pattern in _RIDDLES.items()
        for match in re.finditer(pattern, text)
    ]
