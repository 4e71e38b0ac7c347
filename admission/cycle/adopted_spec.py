"""The specification of an adopted job: what its scheduler knows, then its owner's words. Pure.

What neither says is of its class, ``adopted`` or ``adopted-once``, which operators review.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from admission.executors.schedulers import moves
from admission.executors.schedulers.models import SchedulerJob
from admission.jobs.classes import SchedulingClass
from admission.jobs.resolution import Resolved
from fleet.partitions import told_in
from headroom.jobs.spec import (
    Checkpoint,
    CrossSite,
    Gang,
    JobSpec,
    LocalitySpec,
    PhaseSpec,
    Power,
    Response,
    Throttling,
)
from headroom.schedulers import contract, words
from headroom.schedulers.words import Words

__all__ = ["CLASSES", "Adopted", "spec_of"]

#: The only phase of an adopted job, where its owner gives it no name.
_PHASE = "job"
#: A job without a limit is taken to run for 30 days, s.
UNLIMITED_S = 30 * 86_400.0
#: Ours go from -100 to 100: a scheduler's own are cut there.
_MOST_URGENT = 100
_REQUEUED, _ONCE = CLASSES = ("adopted", "adopted-once")


@dataclass(frozen=True)
class Adopted:
    """A specification with its class; ``wrong`` says which words of its owner were left out.

    ``pipeline``: the run that it is a phase of, with its owner's name; empty: of none.
    """

    resolved: Resolved
    wrong: tuple[str, ...]
    pipeline: str = ""


def spec_of(
    row: SchedulerJob,
    project: str,
    classes: Mapping[str, SchedulingClass],
    models: Sequence[str],
    sites: Mapping[str, Collection[str]],
) -> Adopted:
    """Return the specification of a job.

    ``classes``: those that its project may have, and the two of adopted jobs. ``models``: those of
    the inventory, by name. ``sites``: those of each scheduler.
    """
    told = row.report
    said = words.read(told.comment)
    job_class, wrong = _class(told, said, classes)
    used, strange = _moves(row, said, sites)
    pipeline, alone = _pipeline(told, said)
    wrong += [*strange, *alone]
    if not pipeline:
        said = replace(said, phase="", inputs=(), outputs=(), promotion=None)
    spec = JobSpec(
        project=project,
        job_class=job_class.name,
        phases=[_phase(told, said, models, _responses(row, said, job_class), used)],
        name=row.name,
        scheduler=row.scheduler.name,
        priority=min(max(told.priority, -_MOST_URGENT), _MOST_URGENT),
        labels=_labels(row, told),
    )
    return Adopted(Resolved(spec, job_class), (*said.wrong, *wrong), pipeline)


def _pipeline(told: contract.SchedulerJob, said: Words) -> tuple[str, list[str]]:
    """Return the pipeline of a job by its owner, and what of its words needs one that it has not.

    Of another owner's pipeline of the same name nobody becomes a part.
    """
    if said.pipeline and "_" not in told.ref:
        return f"{told.user}/{said.pipeline}", []
    if said.pipeline:
        return "", ["pipeline is for jobs that are no part of an array: all would make the same"]
    named = [
        word
        for word, value in {
            "phase": said.phase, "input": said.inputs, "output": said.outputs,
            "promotion": said.promotion,
        }.items()
        if value
    ]  # fmt: skip
    return "", [f"{' and '.join(named)} needs the pipeline to be named, too"] if named else []


def _class(
    told: contract.SchedulerJob, said: Words, classes: Mapping[str, SchedulingClass]
) -> tuple[SchedulingClass, list[str]]:
    """Return the class of a job, and why it is not the one that its owner wants."""
    usual = classes[_REQUEUED if told.can_requeue else _ONCE]
    if not said.job_class:
        return usual, []
    wanted = classes.get(said.job_class)
    if wanted is None:
        return usual, [f"class {said.job_class!r} is none that it may have"]
    if wanted.preemptible and not told.can_requeue:
        return usual, [f"class {said.job_class!r} wants a job that can be requeued"]
    return wanted, []


def _phase(
    told: contract.SchedulerJob,
    said: Words,
    models: Sequence[str],
    responses: list[Response] | None,
    sites: list[str],
) -> PhaseSpec:
    step, fewest = told.gpus_per_node, told.min_nodes
    is_elastic = step is not None and fewest is not None and 0 < fewest < told.nodes_wanted
    model, profile = told_in(told.model)
    wanted = model.casefold()
    return PhaseSpec(
        name=said.phase or _PHASE,
        gang=Gang(
            gpus=told.gpus,
            min_gpus=fewest * step if is_elastic and fewest and step else None,
            gpus_per_node=step,
            models=[name for name in models if wanted and wanted in str(name).casefold()],
            slice=profile or None,
        )
        if told.gpus
        else _of_cores(told),
        walltime_s=told.time_limit_s or UNLIMITED_S,
        locality=LocalitySpec(
            nodes=told.only_nodes, sites=sites, data_site=sites[0] if sites else ""
        ),
        power=Power(expected_peak_w=said.peak_w, lowest_cap_w=None if profile else said.cap_w),
        checkpoint=Checkpoint(
            interval_s=said.checkpoint_s, cross_site=CrossSite.REQUIRED if sites else None
        ),
        throttling=Throttling(responses=responses, min_batch_scale=said.min_batch_scale),
        inputs=list(said.inputs),
        outputs=list(said.outputs),
        promotion=said.promotion,
    )


def _of_cores(told: contract.SchedulerJob) -> Gang:
    nodes = told.nodes_wanted if told.nodes_wanted > 1 else None
    return Gang(gpus=0, cores=max(told.cores, 1), nodes=nodes, mem_bytes=told.mem_bytes)


def _responses(row: SchedulerJob, said: Words, job_class: SchedulingClass) -> list[Response] | None:
    """Return what a job may be asked for; None: what its class says.

    No scheduler is asked for what it cannot do.
    """
    if moves.may_move(row.scheduler.kind, row.report):
        given = said.responses or job_class.defaults.throttling.responses or (Response.CONTINUE,)
        return list(dict.fromkeys([*given, Response.MIGRATE]))
    if row.scheduler.kind in contract.CAN_SUSPEND:
        return list(said.responses) or None
    given = said.responses or job_class.defaults.throttling.responses or ()
    return [each for each in given if each is not Response.PAUSE] or [Response.CONTINUE]


def _moves(
    row: SchedulerJob, said: Words, sites: Mapping[str, Collection[str]]
) -> tuple[list[str], list[str]]:
    """Return the sites that a job may use, its own first, and what is wrong with its words.

    No sites: it stays in its scheduler.
    """
    if not said.move_to:
        return [], []
    if not moves.may_move(row.scheduler.kind, row.report):
        return [], ["move_to is for batch jobs that can be requeued, and are no part of an array"]
    wrong = [f"no scheduler {name!r} was heard of" for name in said.move_to if name not in sites]
    mine = sorted(sites.get(row.scheduler.name, ()))
    others = {site for name in said.move_to for site in sites.get(name, ())}
    return [*mine, *sorted(others - set(mine))], wrong


def _labels(row: SchedulerJob, told: contract.SchedulerJob) -> dict[str, str]:
    known = {
        "scheduler": row.scheduler.name,
        "scheduler-job": row.ref,
        "user": told.user,
        "account": told.account,
        "partition": told.partition,
        "name": told.name,
    }
    return {name: value for name, value in known.items() if value}
