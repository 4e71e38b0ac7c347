"""GPUs by their UUIDs, for senders that give no index."""

from __future__ import annotations

from functools import lru_cache

from fleet import snapshot
from fleet.models import Gpu

__all__ = ["gpus_by_uuid"]


def gpus_by_uuid() -> dict[str, tuple[str, int]]:
    """Return node name and index of each GPU whose UUID the inventory knows.

    One query after each change of the inventory.
    """
    return _by_uuid(snapshot.current().generation)


@lru_cache(maxsize=1)
def _by_uuid(_generation: int) -> dict[str, tuple[str, int]]:
    known = Gpu.objects.exclude(uuid="").values_list("uuid", "node__name", "index")
    return {uuid: (node, index) for uuid, node, index in known}
