"""Every page in each state that a fleet may be in, in both themes, on a desk and on a phone.

With the variable HEADROOM_PICTURES a picture of each is kept in that folder: ``make pictures``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from accounts.roles import Role
from fleet.models import Rack
from tests.browser.chromium import DESKTOP, PHONE
from tests.browser.conftest import Visitor, Visits
from tests.browser.pages import OF_ANY_FLEET, Shown, faults, of_things
from tests.builders.large import make_large, read_all
from tests.builders.lively import make_lively
from tests.builders.long_names import LONG, LONG_DOCUMENT, LONG_PROJECT, make_long_names

_PICTURES = os.environ.get("HEADROOM_PICTURES")
#: What is below that, a person scrolls to, px; a browser draws no picture of any height.
_MOST_PX = 6000
_HOUR_S = 3600.0


def long_names() -> Shown:
    made = make_long_names()
    rack = Rack.objects.get(pk=made.racks["bergen/A01"].pk)
    return Shown(
        rack, made.nodes["bergen-a01-n1"], made.gpu("bergen-a01-n1"), site=LONG, domain=LONG,
        zone=LONG, link=LONG, project=LONG_PROJECT, job="x" * 200, running=LONG,
        rule=LONG_DOCUMENT, playbook=LONG_PROJECT, slo="s" * 100, rollout=LONG_DOCUMENT,
    )  # fmt: skip


#: None: there is nothing to be shown.
STATES: dict[str, Callable[[], Shown | None]] = {
    "busy": lambda: Shown.of(make_lively()),
    "large": lambda: Shown.of(make_large()),
    "empty": lambda: None,
    "stale": lambda: Shown.of(make_lively(age_s=_HOUR_S)),
    "long-names": long_names,
}
#: By state what reads the fleet again before each page: a hundred of them take minutes.
_READ_AGAIN: dict[str, Callable[[], None]] = {"large": read_all}


@pytest.mark.slow
@pytest.mark.parametrize("state", STATES)
def test_every_page_is_whole_in_every_state(
    visits: Visits, transactional_db: None, state: str
) -> None:
    shown = STATES[state]()
    paths = OF_ANY_FLEET | (of_things(shown) if shown else {})
    found = {}
    for on, size in {"desktop": DESKTOP, "phone": PHONE}.items():
        visitor = visits(Role.ADMIN, size=size)
        for name, path in paths.items():
            _READ_AGAIN.get(state, lambda: None)()
            visitor.open(path)
            found[f"{name}-{on}"] = faults(visitor)
            keep_picture(visitor, f"{state}/{name}-light-{on}.png")
            visitor.page.emulate_media(color_scheme="dark")
            found[f"{name}-dark-{on}"] = visitor.inaccessible()
            keep_picture(visitor, f"{state}/{name}-dark-{on}.png")
            visitor.page.emulate_media(color_scheme="light")
        visitor.page.goto("about:blank")  # it polls no more
    told = [f"{where}: {fault}" for where, wrong in found.items() for fault in wrong]
    assert told == [], "\n".join(told)


def keep_picture(visitor: Visitor, name: str) -> None:
    """Take a picture of a page from its top on, where pictures are asked for."""
    if _PICTURES is None:
        return
    width, height = visitor.page.evaluate("[innerWidth, document.documentElement.scrollHeight]")
    visitor.page.screenshot(
        path=Path(_PICTURES) / name,
        full_page=True,
        clip={"x": 0, "y": 0, "width": width, "height": min(height, _MOST_PX)},
    )
