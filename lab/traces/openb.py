"""Tasks of Alibaba's GPU cluster of 2023, "openb": a list of pods, with shares of GPUs.

Columns as published (github.com/alibaba/clusterdata, cluster-trace-gpu-v2023; Weng et al., "Beware
of Fragmentation", USENIX ATC 2023): ``num_gpu`` from 0 to 8, ``gpu_milli`` the share of the GPU in
thousandths where it is one, ``creation_time``, ``scheduled_time`` and ``deletion_time`` in s.
"""

from __future__ import annotations

import math
from pathlib import Path

from lab.traces.trace import Builder, Job, JobTrace, rows_of

__all__ = ["load"]

_COLUMNS = ("num_gpu", "gpu_milli", "qos", "creation_time", "deletion_time", "scheduled_time")


def load(path: Path) -> JobTrace:
    """Return the tasks of a table of pods, gzipped or not; ``path`` is it or its folder.

    Tasks without a GPU, and those that never ran, are left out and counted. The service class
    stands for the project. Raises :class:`~lab.traces.TraceError`.
    """
    path = path / "pods_default.csv.gz" if path.is_dir() else path
    found = Builder(path)
    for line, row in rows_of(path, _COLUMNS):
        if row["num_gpu"] == "0":
            found.leave_out("tasks without a GPU")
        elif not row["scheduled_time"]:
            found.leave_out("tasks that never ran")
        else:
            _add(found, line, row)
    return found.trace()


def _add(found: Builder, line: int, row: dict[str, str]) -> None:
    values: dict[str, float] = {}
    for name in ("num_gpu", "gpu_milli", "creation_time", "deletion_time", "scheduled_time"):
        try:
            values[name] = float(row[name])
        except ValueError:
            values[name] = math.nan
        if not math.isfinite(values[name]):
            found.refuse(line, name, f"{row[name]!r} cannot be read")
            return
    found.add(
        line,
        Job(
            submit_s=values["creation_time"],
            runs_s=values["deletion_time"] - values["scheduled_time"],
            gpus=int(values["num_gpu"]),
            gpu_share=values["gpu_milli"] / 1000.0 if values["num_gpu"] == 1 else 1.0,
            project=row["qos"],
            wait_s=max(values["scheduled_time"] - values["creation_time"], 0.0),
        ),
    )
