"""The order of Kueue's states, played on an API server: the controllers that a cluster would run.

What is played is what Kueue v0.19.2 does by its source (file by file in :mod:`.states` and
:mod:`.quota`) with its feature gates as they come, for workloads of one ClusterQueue or several
without cohorts. It speaks HTTP alone, so it runs against a real API server as well, where no Kueue
does.
"""

from __future__ import annotations

from tests.kubernetes.kueue.controller import Kueue

__all__ = ["Kueue"]
