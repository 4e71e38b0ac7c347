"""Checks of the settings at start."""

from __future__ import annotations

from typing import Any

from django.core import checks

from policies.incidents import declared, outgoing

__all__ = ["inhibitions_file", "notify_networks"]


def inhibitions_file(**_: Any) -> list[checks.CheckMessage]:
    """A file that cannot be read would stop the policy loop later."""
    try:
        declared.inhibitions()
    except declared.BadInhibitions as error:
        return [
            checks.Error(
                str(error),
                hint="Mend the file, or unset INHIBITIONS_FILE for the built-in one.",
                id="headroom.E003",
            )
        ]
    return []


def notify_networks(**_: Any) -> list[checks.CheckMessage]:
    """A network that cannot be read would refuse every notification later."""
    try:
        outgoing.allowed_networks()
    except ValueError as error:
        return [
            checks.Error(
                f"NOTIFY_ALLOWED_NETWORKS: {error}.",
                hint="Write networks as 10.0.0.0/8,192.168.1.5/32.",
                id="headroom.E004",
            )
        ]
    return []
