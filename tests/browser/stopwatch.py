"""What it takes somebody until a question is answered: clicks and seconds."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field

from playwright.sync_api import Locator


@dataclass
class Stopwatch:
    """Counts what somebody clicks until a question is answered, and takes the time."""

    question: str
    clicks: int = 0
    _began: float = field(default_factory=time.monotonic)

    def click(self, what: Locator) -> None:
        self.clicks += 1
        what.click()

    def stop(self, *, most: int) -> None:
        """Print what it took; fail where it took more than ``most`` clicks."""
        print(f"{self.question}: {self.clicks} clicks, {time.monotonic() - self._began:.1f} s")
        assert self.clicks <= most, self.question


def kilowatts_of(text: str, words: str) -> float:
    """Return the kW that a text says behind ``words``."""
    found = re.search(rf"{words}\s*([\d.,]+) kW", text)
    assert found is not None, (words, text[:400])
    return float(found[1].replace(",", ""))
