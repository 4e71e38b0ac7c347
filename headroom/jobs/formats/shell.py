"""Simple commands of a shell script, as far as their first words. Pure.

No whole grammar of a shell: what stands in quotes, behind a ``#`` or in a here-document could look
like a command. A word counts where a command can begin: at a line's start, or behind ``;``, ``&``,
``|``, ``(`` and the words of the shell.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

__all__ = ["calls", "without_launcher"]

_BEGINS = r"(?:^|[;&|(]|\b(?:then|do|else|exec|time)\b)[ \t]*"
#: A word with its quotes, an escaped end of line between words, and blanks.
_WORD = r"""(?:[^\s"'\\;&|()]|\\[^\n]|"(?:\\.|[^"\\])*"|'[^']*')+"""
_BLANK = r"(?:[ \t]|\\\n)+"


def calls(script: str, program: str) -> bool:
    """Say whether ``script`` runs ``program``."""
    return _of(program).search(_uncommented(script)) is not None


def without_launcher(script: str, launcher: str, takes_value: Mapping[str, bool]) -> str:
    """Return ``script`` with what ``launcher`` would have run in its place, without its options.

    ``takes_value`` says of each option, as it is written (``--nodes``, ``-N``), whether a value
    comes behind it; one that is not there takes none.
    """
    valued = {option for option, takes in takes_value.items() if takes}
    pieces, at = [], 0
    for found in _of(launcher).finditer(script):
        pieces.append(script[at : found.start("word")])
        at = _behind_options(script, found.end("word"), valued)
    return "".join([*pieces, script[at:]])


def _of(program: str) -> re.Pattern[str]:
    return re.compile(rf"{_BEGINS}(?P<word>{re.escape(program)})(?={_BLANK}|$)", re.MULTILINE)


def _uncommented(script: str) -> str:
    return re.sub(r"(?m)^[ \t]*#.*$", "", script)


def _behind_options(script: str, at: int, valued: Collection[str]) -> int:
    """Return where the first word stands that is neither an option nor the value of one."""
    word = re.compile(rf"{_BLANK}(?P<text>{_WORD})")
    is_value = False
    while (found := word.match(script, at)) is not None:
        text = found["text"]
        if not is_value and not text.startswith("-"):
            return found.start("text")
        is_value = not is_value and text in valued
        at = found.end()
    return at
