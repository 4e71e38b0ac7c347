"""Artifacts that phases hand on: what is wrong with how they are named, and their variables. Pure.

A phase names an artifact by the phase that makes it and its name there: "train/model".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from headroom.contracts import FieldError
from headroom.jobs.spec import ArtifactOf, JobSpec, Need, Output, PhaseSpec

__all__ = ["before_each", "problems_of", "variable_of"]

#: What phases make, by phase and name.
_Outputs: TypeAlias = Mapping[str, Mapping[str, Output]]

_NOT_IN_VARIABLES = re.compile(r"[^A-Z0-9]")


def variable_of(phase: str, output: str) -> str:
    """Return the variable that holds the path of an artifact; ``_DIGEST`` behind it, its digest."""
    return "HEADROOM_ARTIFACT_" + _NOT_IN_VARIABLES.sub("_", f"{phase}_{output}".upper())


def before_each(phases: Sequence[PhaseSpec]) -> dict[str, set[str]]:
    """Return the phases of the same job that have succeeded before each begins, by name.

    Needs that go round in a circle, or name no phase, lead no further.
    """
    needs = {each.name: {need for need in map(_succeeds, each.needs) if need} for each in phases}
    return {name: _reached(name, needs) for name in needs}


def _reached(name: str, needs: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    left = set(needs[name])
    while left:
        found |= left
        left = {before for each in left for before in needs.get(each, ())} - found
    return found


def _succeeds(need: str | Need) -> str | None:
    return need if isinstance(need, str) else None


def problems_of(spec: JobSpec) -> Iterator[FieldError]:
    """Yield what is wrong with the artifacts that phases make and take."""
    outputs = {each.name: {output.name: output for output in each.outputs} for each in spec.phases}
    before = before_each(spec.phases)
    for index, phase in enumerate(spec.phases):
        path = f"phases[{index}]"
        yield from _made(spec, phase, path)
        for field, named in _named(phase):
            yield from _earlier(phase, named, f"{path}.{field}", before, outputs)
        yield from _alike(phase, path)
        yield from _promoted(phase, path, outputs)


def _named(phase: PhaseSpec) -> Iterator[tuple[str, ArtifactOf]]:
    """Yield the artifacts of earlier phases that a phase names, each with its field."""
    for place, each in enumerate(phase.inputs):
        yield f"inputs[{place}]", each
    for place, output in enumerate(phase.outputs):
        if output.copy_of is not None:
            yield f"outputs[{place}].copy_of", output.copy_of
    if phase.promotion is not None:
        for place, matrix in enumerate(phase.promotion.matrix):
            yield f"promotion.matrix[{place}]", matrix


def _made(spec: JobSpec, phase: PhaseSpec, path: str) -> Iterator[FieldError]:
    if phase.outputs and spec.array is not None:
        yield FieldError(
            code="invalid_array",
            message="each element would leave its artifacts at the same paths",
            field=f"{path}.outputs",
            hint="leave them out, or submit a job for each",
        )
    names: set[str] = set()
    for place, output in enumerate(phase.outputs):
        if output.name in names:
            yield FieldError(
                code="duplicate",
                message=f"phase {phase.name} makes {output.name!r} already",
                field=f"{path}.outputs[{place}].name",
                hint="give each artifact of a phase a name of its own",
            )
        names.add(output.name)
        yield from _of_copy(output, f"{path}.outputs[{place}]")


def _of_copy(output: Output, path: str) -> Iterator[FieldError]:
    """Yield what a copy may not say, since what it is a copy of says it."""
    for field in ("copies", "matrix"):
        if output.copy_of is not None and getattr(output, field):
            yield FieldError(
                code="not_of_a_copy",
                message=f"it is a copy of {output.copy_of}, whose own {field} count",
                field=f"{path}.{field}",
                hint="say it there",
            )


def _promoted(phase: PhaseSpec, path: str, outputs: _Outputs) -> Iterator[FieldError]:
    """Yield what is wrong with what a phase promotes, and with the verdicts that it goes by."""
    if phase.promotion is None:
        return
    if not phase.inputs:
        yield FieldError(
            code="nothing_promoted",
            message=f"{phase.name} takes no artifact, so that nothing is promoted",
            field=f"{path}.promotion",
            hint="name what it promotes in its inputs",
        )
    for place, each in enumerate(phase.promotion.matrix):
        output = outputs.get(each.phase, {}).get(each.output)
        if output is not None and not output.matrix:
            yield FieldError(
                code="no_matrix",
                message=f"{each} is not said to be the result of a matrix",
                field=f"{path}.promotion.matrix[{place}]",
                hint=f"put matrix: true into that output of {each.phase}",
            )


def _earlier(
    phase: PhaseSpec,
    named: ArtifactOf,
    field: str,
    before: Mapping[str, set[str]],
    outputs: _Outputs,
) -> Iterator[FieldError]:
    """Yield what is wrong with an artifact that is named: no earlier phase makes it."""
    if named.phase not in outputs:
        yield FieldError(
            code="unknown_phase",
            message=f"there is no phase {named.phase!r}",
            field=f"{field}.phase",
            hint=f"name one of {', '.join(sorted(outputs.keys() - {phase.name})) or 'none'}",
        )
    elif named.output not in outputs[named.phase]:
        made = ", ".join(sorted(outputs[named.phase])) or "none: state them in its outputs"
        yield FieldError(
            code="unknown_artifact",
            message=f"phase {named.phase} makes no artifact {named.output!r}",
            field=f"{field}.output",
            hint=f"name one of {made}",
        )
    elif named.phase not in before[phase.name]:
        yield FieldError(
            code="not_before",
            message=f"{phase.name} may begin before {named.phase} has succeeded",
            field=f"{field}.phase",
            hint=f"put {named.phase} into the needs of {phase.name}",
        )


def _alike(phase: PhaseSpec, path: str) -> Iterator[FieldError]:
    """Yield a fault for each input whose variable another one of the phase has."""
    first: dict[str, ArtifactOf] = {}
    for place, each in enumerate(phase.inputs):
        other = first.setdefault(variable_of(each.phase, each.output), each)
        if other is not each:
            yield FieldError(
                code="duplicate",
                message=f"{other} has the variable {variable_of(each.phase, each.output)} already",
                field=f"{path}.inputs[{place}]",
                hint="take it once, or give one of the two another name",
            )
