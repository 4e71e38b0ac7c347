"""A browser in words, for people who look for a session that is not theirs."""

from __future__ import annotations

# The first that matches counts: each browser names those that it wants to pass for, too.
_BROWSERS = [
    ("Edg", "Edge"),
    ("OPR/", "Opera"),
    ("Firefox/", "Firefox"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
    ("curl/", "curl"),
    ("python-requests/", "a Python program"),
]
_SYSTEMS = [
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("CrOS", "ChromeOS"),
    ("Linux", "Linux"),
]


def in_words(user_agent: str) -> str:
    """Return browser and system, such as ``Firefox on Linux``, as the browser claims them."""
    browser, system = _first(_BROWSERS, user_agent), _first(_SYSTEMS, user_agent)
    if browser and system:
        return f"{browser} on {system}"
    return browser or system or "unknown browser"


def _first(known: list[tuple[str, str]], user_agent: str) -> str:
    return next((name for mark, name in known if mark in user_agent), "")
