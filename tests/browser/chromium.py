"""How the system's Chromium is found and started."""

from __future__ import annotations

import shutil

DESKTOP = (1440, 900)
PHONE = (390, 844)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-quic",
]


#: The first of these that is there. The headless shell draws the same pages without the windows of
#: a desktop, each of which costs the others a second of work.
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser")


def executable() -> str | None:
    """Return the path of Chromium, or None."""
    return next(filter(None, map(shutil.which, _NAMES)), None)
