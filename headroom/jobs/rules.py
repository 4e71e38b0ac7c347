"""Rules of a specification beyond its types, as far as they can be checked without a fleet."""

from __future__ import annotations

import graphlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from headroom.contracts import FieldError
from headroom.jobs import array, artifacts
from headroom.jobs.spec import JobSpec, Level, Need, PhaseSpec, Response

__all__ = ["LEVELS", "problems_of", "problems_of_phase"]

#: The closest first.
LEVELS: list[Level] = list(Level)
#: Set by the executor: a job that set them could reach for GPUs of others.
_RESERVED = ("HEADROOM_", "CUDA_VISIBLE_DEVICES")
#: Phases of an array have the index of their element behind their name: "train.7".
_LONGEST_OF_ARRAY = 50


def problems_of(spec: JobSpec) -> list[FieldError]:
    """Return all errors of ``spec``, each with its path."""
    found = [*_names(spec), *_needs(spec), *_array(spec), *_interactive(spec)]
    if not found:
        found += [*_cycles(spec), *artifacts.problems_of(spec)]
    for index, phase in enumerate(spec.phases):
        found += problems_of_phase(phase, f"phases[{index}]")
    return found


def problems_of_phase(phase: PhaseSpec, path: str) -> list[FieldError]:
    """Return the errors within one phase that stands at ``path``."""
    return [problem for check in _CHECKS for problem in check(phase, path)]


def _names(spec: JobSpec) -> Iterator[FieldError]:
    first: dict[str, int] = {}
    for index, phase in enumerate(spec.phases):
        if first.setdefault(phase.name, index) != index:
            yield FieldError(
                code="duplicate",
                message=f"phases[{first[phase.name]}] has the name {phase.name!r} already",
                field=f"phases[{index}].name",
                hint="give each phase a name of its own",
            )


def _needs(spec: JobSpec) -> Iterator[FieldError]:
    names = {phase.name for phase in spec.phases}
    for index, phase in enumerate(spec.phases):
        for place, need in enumerate(phase.needs):
            path, name = f"phases[{index}].needs[{place}]", _own(need)
            if isinstance(need, Need):
                yield from _need(need, path, spec)
            if name is not None and name not in names:
                yield FieldError(
                    code="unknown_phase",
                    message=f"there is no phase {name!r}",
                    field=path,
                    hint=f"name one of {', '.join(sorted(names - {phase.name})) or 'none'}",
                )
    for place, need in enumerate(spec.needs):
        yield from _need(need, f"needs[{place}]", spec, is_of_job=True)


def _own(need: str | Need) -> str | None:
    """Return the phase of the same job that is needed; None: another job is."""
    if isinstance(need, str):
        return need
    return need.phase if need.job is None else None


def _need(need: Need, path: str, spec: JobSpec, *, is_of_job: bool = False) -> Iterator[FieldError]:
    """Yield what is wrong with a need whatever other jobs there are."""
    if need.job is None:
        if is_of_job or need.phase is None:
            yield FieldError(
                code="required",
                message="it names neither a job nor a phase"
                if not is_of_job
                else "it names no job",
                field=f"{path}.job",
                hint="name the job that is to come before",
            )
        elif spec.array is not None:
            yield FieldError(
                code="invalid_array",
                message="phases of an element wait for others of it to succeed, by their names",
                field=path,
                hint=f"write {need.phase}, or take the phase out of the array",
            )
        elif need.element is not None:
            yield FieldError(
                code="no_such_element", message="this job is no array", field=f"{path}.element",
                hint="leave it out",
            )  # fmt: skip
    elif need.job == spec.name:
        yield FieldError(
            code="cycle",
            message=f"job {spec.name} waits for itself: {spec.name} → {spec.name}",
            field=f"{path}.job",
            hint="name a job that was submitted before",
        )
    elif need.element == "same" and spec.array is None:
        yield FieldError(
            code="no_such_element",
            message="this job is no array, so no element of another is the same as one of its own",
            field=f"{path}.element",
            hint="name an element of it, or leave it out to need all of them",
        )


def _cycles(spec: JobSpec) -> Iterator[FieldError]:
    graph = {
        phase.name: [name for name in map(_own, phase.needs) if name is not None]
        for phase in spec.phases
    }
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        circle: list[str] = error.args[1]
        index = [phase.name for phase in spec.phases].index(circle[-1])
        yield FieldError(
            code="cycle",
            message=f"these phases wait for each other: {' → '.join(circle)}",
            field=f"phases[{index}].needs",
            hint="take one of them out of `needs`",
        )


def _array(spec: JobSpec) -> Iterator[FieldError]:
    if spec.array is None:
        return
    try:
        array.read(spec.array)
    except array.ArrayError as error:
        yield FieldError(code="invalid_array", message=str(error), field="array", hint=error.hint)
    for index, phase in enumerate(spec.phases):
        if len(phase.name) > _LONGEST_OF_ARRAY or array.name_in_spec(phase.name) != phase.name:
            yield FieldError(
                code="invalid_array",
                message=f"{phase.name!r} leaves no room for the index of an element",
                field=f"phases[{index}].name",
                hint=f"take at most {_LONGEST_OF_ARRAY} characters, and no number behind a dot",
            )


def _interactive(spec: JobSpec) -> Iterator[FieldError]:
    if spec.interactive and (spec.array is not None or len(spec.phases) > 1):
        yield FieldError(
            code="not_interactive",
            message="a job for a terminal has one phase, and is no array",
            field="interactive",
            hint="leave it out, or take the others out",
        )


# --- Within a phase -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _AtMost:
    """The rule that one field is not above another, where both are given."""

    low: str
    high: str
    hint: str

    def __call__(self, phase: PhaseSpec, path: str) -> Iterator[FieldError]:
        low, high = _value(phase, self.low), _value(phase, self.high)
        if low is not None and high is not None and low > high:
            yield FieldError(
                code="out_of_order",
                message=f"{_short(low)} is above {self.high}, {_short(high)}",
                field=f"{path}.{self.low}",
                hint=self.hint,
            )


def _value(phase: PhaseSpec, path: str) -> float | None:
    section, _, name = path.partition(".")
    value: float | None = getattr(getattr(phase, section), name)
    return value


def _short(value: float) -> str:
    return f"{value:g}" if abs(value) < 1e6 else f"{value:,.0f}"


def _whole_nodes(phase: PhaseSpec, path: str) -> Iterator[FieldError]:
    each = phase.gang.gpus_per_node
    for name in ("gpus", "min_gpus", "max_gpus"):
        gpus = getattr(phase.gang, name)
        if each is not None and gpus is not None and gpus % each:
            below = gpus - gpus % each
            yield FieldError(
                code="not_a_multiple",
                message=f"{gpus} GPUs do not fill nodes of {each}",
                field=f"{path}.gang.{name}",
                hint=f"ask for {f'{below} or ' if below else ''}{below + each}",
            )


def _slice(phase: PhaseSpec, path: str) -> Iterator[FieldError]:
    """Yield a fault for each field that has no meaning on a slice of a GPU."""
    gang, responses = phase.gang, phase.throttling.responses or []
    if gang.slice is None:
        return
    alone = "slices share neither NVLink nor memory: a process reaches one of them"
    held = "a cap is of a GPU as a whole, and would hold back the others on it"
    for field, is_wrong, why, hint in (
        ("gang.gpus", gang.gpus != 1, alone, "ask for 1, and take an array for more of them"),
        ("gang.min_gpus", (gang.min_gpus or 1) != 1, alone, "leave it out"),
        ("gang.max_gpus", (gang.max_gpus or 1) != 1, alone, "leave it out"),
        ("gang.gpus_per_node", (gang.gpus_per_node or 1) != 1, alone, "leave it out"),
        ("power.lowest_cap_w", phase.power.lowest_cap_w is not None, held, "leave it out"),
        ("throttling.responses", Response.CONTINUE in responses, held, "leave out continue"),
    ):
        if is_wrong:
            yield FieldError(
                code="not_on_a_slice", message=f"{gang.slice} is a slice: {why}",
                field=f"{path}.{field}", hint=hint,
            )  # fmt: skip


def _cores(phase: PhaseSpec, path: str) -> Iterator[FieldError]:
    """Yield a fault for each field that has no meaning with or without CPU cores."""
    gang, responses = phase.gang, phase.throttling.responses or []
    if gang.cores is None:
        if gang.gpus == 0:
            yield FieldError(
                code="required", message="it takes neither GPUs nor CPU cores",
                field=f"{path}.gang.cores", hint="say how many cores it takes on each node",
            )  # fmt: skip
        for name in ("nodes", "mem_bytes"):
            if getattr(gang, name) is not None:
                yield FieldError(
                    code="not_with_gpus", message=f"{name} is of a phase that takes CPU cores",
                    field=f"{path}.gang.{name}", hint="leave it out, or ask for cores and 0 GPUs",
                )  # fmt: skip
        return
    beside = "cores are those of nodes that have no GPUs: those of others serve their GPUs"
    whole = "a phase without GPUs takes all of its cores, or none"
    held = "there is no power cap on cores"
    for field, is_wrong, why, hint in (
        ("gang.gpus", gang.gpus != 0, beside, "ask for 0, or leave cores out"),
        ("gang.min_gpus", gang.min_gpus is not None, whole, "leave it out"),
        ("gang.max_gpus", gang.max_gpus is not None, whole, "leave it out"),
        ("gang.gpus_per_node", gang.gpus_per_node is not None, whole, "leave it out"),
        ("gang.slice", gang.slice is not None, beside, "leave it out"),
        ("power.lowest_cap_w", phase.power.lowest_cap_w is not None, held, "leave it out"),
        ("throttling.responses", Response.CONTINUE in responses, held, "leave out continue"),
    ):
        if is_wrong:
            yield FieldError(
                code="not_on_cores", message=f"it takes CPU cores: {why}",
                field=f"{path}.{field}", hint=hint,
            )  # fmt: skip


def _preferred_level(phase: PhaseSpec, path: str) -> Iterator[FieldError]:
    required, preferred = phase.locality.required, phase.locality.preferred
    if required and preferred and LEVELS.index(preferred) > LEVELS.index(required):
        yield FieldError(
            code="out_of_order",
            message=f"{preferred} is looser than what is required, {required}",
            field=f"{path}.locality.preferred",
            hint=f"prefer {required} or closer",
        )


def _environment(phase: PhaseSpec, path: str) -> Iterator[FieldError]:
    for name in phase.env:
        if name.startswith(_RESERVED):
            yield FieldError(
                code="reserved",
                message=f"{name} is set by the executor",
                field=f"{path}.env.{name}",
                hint="leave it out",
            )


def _paths_of_inputs(phase: PhaseSpec, path: str) -> Iterator[FieldError]:
    """Yield a fault for each place of an input that there is nothing to hold against."""
    given = phase.artifacts
    if given.code_path is not None and given.code_revision is None:
        yield FieldError(
            code="required",
            message="where the code lies is stated, and not which commit it is",
            field=f"{path}.artifacts.code_revision",
            hint="give the whole id of the commit, or take code_path out",
        )
    for name in given.data_paths:
        if name not in (given.data or {}):
            yield FieldError(
                code="required",
                message=f"where {name} lies is stated, and not its checksum",
                field=f"{path}.artifacts.data.{name}",
                hint="give what `headroom digest` prints of it, or take it out of data_paths",
            )


def _preference(phase: PhaseSpec, path: str) -> Iterator[FieldError]:
    if phase.energy.may_wait_s > 0.0 and phase.energy.prefer is None:
        yield FieldError(
            code="nothing_preferred",
            message="it may wait, and does not say for what",
            field=f"{path}.energy.prefer",
            hint="give price or carbon, or leave may_wait_s out",
        )


_CHECKS: list[Callable[[PhaseSpec, str], Iterator[FieldError]]] = [
    _AtMost("gang.min_gpus", "gang.gpus", "ask for more, or lower min_gpus"),
    _AtMost("gang.gpus", "gang.max_gpus", "raise max_gpus, or ask for fewer"),
    _AtMost("gang.gpus_per_node", "gang.gpus", "lower it"),
    _AtMost("power.lowest_cap_w", "power.expected_peak_w", "a cap above its peak caps nothing"),
    _AtMost("throttling.pause_below", "throttling.shrink_below", "it shrinks before it pauses"),
    _whole_nodes,
    _slice,
    _cores,
    _preferred_level,
    _preference,
    _environment,
    _paths_of_inputs,
]
