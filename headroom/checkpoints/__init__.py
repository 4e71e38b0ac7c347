"""Checkpoints that say what they are, and travel: docs/reference/checkpoints.md.

A loop writes a folder and calls :func:`stage`; a :class:`Keeper` beside it saves what is staged,
ships it to another store and removes what is old. :func:`restore` takes the newest that is whole.
"""

from headroom.checkpoints.collecting import Collected, Keep, collect
from headroom.checkpoints.errors import Damaged, Fenced, NoCheckpoint, NotTaken, NotWhole
from headroom.checkpoints.inputs import InputsDiffer
from headroom.checkpoints.keeper import Keeper
from headroom.checkpoints.lag import Lag, behind, lag, next_to_ship
from headroom.checkpoints.manifest import About, Change, Chunk, File, Manifest, Name
from headroom.checkpoints.pace import Pace
from headroom.checkpoints.promises import Clock
from headroom.checkpoints.restoring import Restored, restore
from headroom.checkpoints.saving import finish, save, stage
from headroom.checkpoints.shipping import Check, Shipped, arrive, ship
from headroom.checkpoints.store import Checkpoint, PassedOver, Store, latest_whole
from headroom.checkpoints.telling import Teller

__all__ = [
    "About",
    "Change",
    "Check",
    "Checkpoint",
    "Chunk",
    "Clock",
    "Collected",
    "Damaged",
    "Fenced",
    "File",
    "InputsDiffer",
    "Keep",
    "Keeper",
    "Lag",
    "Manifest",
    "Name",
    "NoCheckpoint",
    "NotTaken",
    "NotWhole",
    "Pace",
    "PassedOver",
    "Restored",
    "Shipped",
    "Store",
    "Teller",
    "arrive",
    "behind",
    "collect",
    "finish",
    "lag",
    "latest_whole",
    "next_to_ship",
    "restore",
    "save",
    "ship",
    "stage",
]
