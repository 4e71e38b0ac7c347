"""Small tables for tests of rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from policies.headroom.columns import FIELDS, Field, Table
from policies.rules.engine import Scopes
from policies.scopes import ScopeKind

#: What conditions in these tests may name.
SAMPLE_FIELDS: dict[str, Field] = {
    "x": Field("double", "W", ""),
    "y": Field("double", "", ""),
    "b": Field("bool", "", ""),
    "s": Field("string", "", ""),
}
_DTYPES: dict[str, Any] = {"double": np.float64, "bool": bool, "string": object}


def make_table(
    kind: ScopeKind = ScopeKind.RACK,
    names: Sequence[str] = ("oslo/r1", "oslo/r2", "oslo/r3"),
    labels: Sequence[Mapping[str, str]] = (),
    fields: Mapping[str, Field] | None = None,
    **columns: Any,
) -> Table:
    """Return a table; what is not given is unknown, and one value stands for all scopes."""
    known = fields or FIELDS[kind]
    blank = {"double": np.nan, "bool": False, "string": ""}
    given = {"name": list(names), "site": [name.split("/")[0] for name in names], **columns}
    made = {
        name: np.array(
            np.broadcast_to(
                np.array(given.get(name, blank[field.type]), dtype=_DTYPES[field.type]),
                len(names),
            )
        )
        for name, field in {"name": known.get("name", SAMPLE_FIELDS["s"]), **known}.items()
    }
    made.setdefault("site", np.array(given["site"], dtype=object))
    return Table(kind, np.array(list(names), dtype=object), made, lambda: list(labels))


def make_scopes(
    kind: ScopeKind = ScopeKind.RACK,
    names: Sequence[str] = ("oslo/r1", "oslo/r2", "oslo/r3"),
    kinds: Sequence[str] | str = "",
    **columns: Any,
) -> Scopes:
    """Return the scopes of a table whose canary groups are its own names."""
    table = make_table(kind, names, **columns)
    told = np.array(np.broadcast_to(np.array(kinds, dtype=object), len(names)))
    return Scopes(table, told, table.names)
