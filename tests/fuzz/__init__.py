"""A fuzzer of the whole server: every route, method, form and way in, as everybody who may knock.

It speaks HTTP to a real server and knows nothing of its inside. ``corpus`` finds out what there is
to ask, ``making`` makes request *n* of a seed, ``sending`` sends, ``running`` judges.
``python -m bench fuzz`` runs 30,000 requests; ``test_slice.py`` runs a slice of them in the suite.

The seeds were fixed before the first run: 0, 1, 2 for what is mended with the fuzzer at hand, and
for the figures that are told the CRC-32 of the version, which nothing was mended with
(:func:`unseen_seed`).
"""

from __future__ import annotations

import tomllib
import zlib
from pathlib import Path

#: What a user may do in a second is bounded; here four users do what hundreds would.
UNBOUNDED = {
    "WRITES_PER_S": "1e6",
    "DEAR_REQUESTS_PER_S": "1e6",
    "DEAR_REQUESTS_AT_ONCE": "100",
    "DEAR_REQUESTS_PER_USER": "100",
    "USER_SUBMISSIONS_PER_S": "1e6",
    "PROJECT_SUBMISSIONS_PER_S": "1e6",
    "LOGIN_ADDRESS_LIMIT": "1000000",
    "LOGIN_NAME_LIMIT": "1000000",
}


def unseen_seed() -> int:
    """Return the seed of the figures that are told: fixed by the version, and never mended with."""
    project = Path(__file__).resolve().parents[2] / "pyproject.toml"
    version = tomllib.loads(project.read_text())["project"]["version"]
    return zlib.crc32(str(version).encode())
