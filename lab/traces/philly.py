"""The table of jobs of Microsoft's Philly cluster, as simulators of schedulers share it.

Columns ``time`` (local, ISO), ``duration_s``, ``num_gpus``, ``vc``. The source does not say whether
``time`` is submission or first start; it is taken for submission. The trace itself is Jeon et al.,
"Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads", USENIX ATC 2019
(github.com/msr-fiddle/philly-traces, CC BY 4.0).
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from lab.traces.trace import Builder, Job, JobTrace, rows_of

__all__ = ["load"]

_COLUMNS = ("time", "duration_s", "num_gpus", "vc")


def load(path: Path) -> JobTrace:
    """Return the jobs of ``jobs.csv``, gzipped or not; ``path`` is it or its folder.

    Raises :class:`~lab.traces.TraceError`.
    """
    path = path / "jobs.csv.gz" if path.is_dir() else path
    found = Builder(path)
    for line, row in rows_of(path, _COLUMNS):
        try:
            at = "time"
            # Local times without a zone, which are only compared with each other.
            submit_s = datetime.fromisoformat(row["time"]).replace(tzinfo=UTC).timestamp()
            at = "duration_s"
            runs_s = float(row["duration_s"])
            at = "num_gpus"
            gpus = int(row["num_gpus"])
        except (ValueError, TypeError):
            found.refuse(line, at, f"{row[at]!r} cannot be read")
            continue
        found.add(line, Job(submit_s=submit_s, runs_s=runs_s, gpus=gpus, project=row["vc"]))
    return found.trace()
