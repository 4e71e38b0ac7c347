"""The artifacts that a phase makes, measured when its command has ended, by the command's own user.

Imports nothing but the standard library: the shim uses it. A digest is the one of
docs/reference/inputs.md, so that whoever takes the artifact verifies it as any other input.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headroom.work.inputs import Refused, digest_of, size_of
from headroom.work.reading import read_plain, write_plain

__all__ = ["measure"]


#: The result of a matrix in its folder, and as much of one as is read, bytes.
_RESULT, _MOST_BYTES = "result.json", 64 * 1024 * 1024
#: How a cell of a matrix ends: docs/reference/matrix.md.
_VERDICTS = ("passed", "failed", "error", "not_measured", "not_run")


def measure(declared: Sequence[Mapping[str, Any]], file: Path) -> None:
    """Measure artifacts (``name``, ``path``) in turn, and tell in ``file`` what was found.

    Of one with ``matrix`` its cells are counted, too.

    Raises :class:`Refused` for the first that is not there or cannot be read; the file then says
    so, too.
    """
    found: list[dict[str, Any]] = []
    refused = ""
    # Of several machines that see one path, what the last to begin has found is of all.
    at = time.time()
    for each in declared:
        try:
            found.append({"name": each["name"], **_measured(each), "at": at})
        except Refused as exc:
            refused = f"output {each['name']}: {exc}"
            break
    write_plain(file, json.dumps({"outputs": found, "refused": refused}).encode(), 0o644)
    if refused:
        raise Refused(refused)


def _measured(output: Mapping[str, Any]) -> dict[str, Any]:
    path = Path(output["path"])
    found: dict[str, Any] = {"digest": digest_of(path), "size_bytes": size_of(path)}
    return {**found, "cells": _cells(path)} if output.get("matrix") else found


def _cells(path: Path) -> dict[str, int]:
    """Return how many cells of a result of a matrix ended how."""
    file = path / _RESULT if path.is_dir() else path
    try:
        cells = json.loads(read_plain(file, _MOST_BYTES))["cells"]
        count = Counter(cell["verdict"] for cell in cells)
    except OSError as exc:
        raise Refused(f"{file} cannot be read: {exc.strerror or exc}") from exc
    except (ValueError, KeyError, TypeError, RecursionError) as exc:
        raise Refused(f"{file} is not the result of a matrix") from exc
    if unknown := count.keys() - set(_VERDICTS):
        raise Refused(f"{file} has a cell that is {min(map(str, unknown))}: of a later version")
    return {verdict: count[verdict] for verdict in _VERDICTS}
