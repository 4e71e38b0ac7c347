"""Dispatch attempts to their executors: after the commit that made them, and again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import structlog

from admission.executors.protocol import NodeShare, Work, WorkPlacement
from admission.executors.registry import UnknownExecutor, executor_of
from admission.jobs import artifacts
from admission.jobs.models import Artifact, Attempt, Phase
from fleet import snapshot
from fleet.snapshot import FleetArrays

__all__ = ["dispatch", "placement_of", "work_of"]

log = structlog.get_logger(__name__)

#: What is dispatched. To read whole rows costs more than to write what follows from them.
_FIELDS = (
    "key", "executor", "number", "placement", "phase__name", "phase__index", "phase__element",
    "phase__job_id",
    "phase__job__name", "phase__job__elements", "phase__job__priority", "phase__job__spec",
    "phase__job__project__name", "phase__request",
)  # fmt: skip


def dispatch(attempts: Sequence[Attempt], now: float) -> int:
    """Submit and release those of ``attempts`` that are still to be run; return how many.

    Repeating it changes nothing. Whoever is about to end, or waits for room, is left out. One
    query, two where some take artifacts, and those of the executors.
    """
    rows = Attempt.objects.filter(
        pk__among=[attempt.pk for attempt in attempts],
        state=Attempt.State.DISPATCHED,
        outcome="",
        room_by=None,
    )
    fleet = snapshot.current()
    by_executor: dict[str, list[Attempt]] = {}
    for row in rows.select_related("phase__job__project").only(*_FIELDS):
        by_executor.setdefault(row.executor, []).append(row)
    return sum(_dispatch(name, mine, fleet, now) for name, mine in by_executor.items())


def _dispatch(name: str, rows: Sequence[Attempt], fleet: FleetArrays, now: float) -> int:
    try:
        executor = executor_of(name)
    except UnknownExecutor as exc:
        log.error("work_not_dispatched", why=str(exc), attempts=len(rows))
        return 0
    taking = {row.phase.job_id for row in rows if _spec_of(row).get("inputs")}
    made = artifacts.of_jobs(taking)
    executor.submit([work_of(row, made.get(row.phase.job_id, {})) for row in rows], now)
    executor.release({row.key: placement_of(row, fleet) for row in rows}, now)
    return len(rows)


def work_of(attempt: Attempt, made: Mapping[tuple[str, str], Artifact] | None = None) -> Work:
    """Return the work of ``attempt`` for its executor; its phase and job are read, too.

    ``made``: the artifacts of its job, by phase and name.
    """
    phase, spec = attempt.phase, _spec_of(attempt)
    taken = artifacts.handed(attempt, made or {})
    return Work(
        key=attempt.key,
        job=phase.job.name,
        phase=phase.name,
        number=attempt.number,
        command=tuple(spec.get("command", ())),
        env={**spec.get("env", {}), **_of_array(phase), **artifacts.variables(taken)},
        walltime_s=spec.get("walltime_s"),
        priority=phase.job.priority,
        comment=f"headroom {attempt.key}",
        project=phase.job.project.name,
        inputs=(*_inputs(spec.get("artifacts", {})), *taken),
        outputs=artifacts.outputs_of(spec),
        slices=tuple(_slices(attempt.placement, phase.request)),
        cores=attempt.placement.get("cores", {}),
        cores_of=_cores_of(attempt.placement.get("cores", {})),
    )


def _spec_of(attempt: Attempt) -> dict[str, Any]:
    spec: dict[str, Any] = attempt.phase.job.spec["phases"][attempt.phase.index]
    return spec


def _cores_of(cores: Mapping[str, Any]) -> dict[str, int]:
    """Return how many cores each of those nodes hands out."""
    if not cores:
        return {}
    fleet = snapshot.current()
    row_of = fleet.nodes.index_by_name
    return {name: fleet.cores.get(row_of[name], 0) for name in cores if name in row_of}


def _slices(placement: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the slices of a placement, as machines take them: a phase with some has one node."""
    for node, slices in placement.get("slices", {}).items():
        for gpu, each in zip(placement["gpus"][node], slices, strict=True):
            yield {"gpu": gpu, **each, "share": request.get("gpu_share", 1.0)}


def _inputs(given: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Yield what a phase declares of its inputs, as machines take it."""
    if image := given.get("image"):
        yield {"name": "image", "digest": image.rpartition("@")[2], "path": ""}
    if revision := given.get("code_revision"):
        yield {"name": "code", "digest": revision, "path": given.get("code_path") or ""}
    places = given.get("data_paths", {})
    for name, checksum in (given.get("data") or {}).items():
        yield {"name": f"data/{name}", "digest": checksum, "path": places.get(name, "")}


def _of_array(phase: Phase) -> dict[str, str]:
    """Return what tells a command which element of its array it is."""
    if phase.element is None:
        return {}
    return {
        "HEADROOM_ARRAY_INDEX": str(phase.element),
        "HEADROOM_ARRAY_COUNT": str(phase.job.elements),
    }


def placement_of(attempt: Attempt, fleet: FleetArrays) -> WorkPlacement:
    """Return the nodes and GPUs of ``attempt``. A node gone from the inventory never takes it."""
    document: dict[str, Any] = attempt.placement
    return WorkPlacement(
        nodes=tuple(
            _share(rank, name, document["gpus"].get(name, []), fleet)
            for rank, name in enumerate(document["nodes"])
        ),
        power_cap_w=document.get("power_cap_w"),
    )


def _share(rank: int, name: str, gpus: Sequence[int], fleet: FleetArrays) -> NodeShare:
    row = fleet.nodes.index_by_name.get(name)
    if row is None:
        # An id that no node has, and no other of the gang.
        return NodeShare(-1 - rank, name, tuple(gpus), len(gpus))
    count = int(fleet.gpu_bounds[row + 1] - fleet.gpu_bounds[row])
    return NodeShare(int(fleet.nodes.ids[row]), name, tuple(gpus), count)
