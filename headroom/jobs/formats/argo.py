"""Workflows of Argo as tasks, each with the pod that it runs and the tasks that come before. Pure.

Their entry point is one container, a DAG of containers, or steps, which are a DAG in which each
group waits for the one before it. What a workflow decides as it runs (loops, conditions, results of
tasks) no specification can say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headroom.jobs.formats.brought import FormatError

__all__ = ["Task", "tasks_of"]

_PLACE = re.compile(r"\{\{\s*([^{}]+?)\s*\}\}")
#: An expression of tasks that all have to have succeeded.
_ALL_OF = re.compile(r"[\w.-]+(\s*&&\s*[\w.-]+)*")
#: What has a task run otherwise than once.
_DECIDED_LATER = ("when", "withItems", "withParam", "withSequence", "inline", "templateRef")
#: Interpreters that take a text behind "-c".
_SHELLS = ("sh", "bash", "zsh", "python", "python3")


@dataclass(frozen=True)
class Task:
    """A task: ``template`` is that of a pod, ``limits`` has the limits that a Job would have."""

    name: str
    template: Mapping[str, Any]
    limits: Mapping[str, Any]
    needs: tuple[str, ...]
    lost: tuple[str, ...]


def tasks_of(spec: Mapping[str, Any], name: str) -> Iterator[Task]:
    """Yield the tasks of a workflow's ``spec``, in its order. Raises :class:`FormatError`."""
    templates = {each["name"]: each for each in spec.get("templates") or ()}
    entry = _template(templates, spec.get("entrypoint"))
    known = {f"workflow.parameters.{key}": value for key, value in _parameters(spec, "arguments")}
    for task in _dag(entry, name):
        if later := [each for each in _DECIDED_LATER if each in task]:
            raise FormatError(f"{task['name']} has {later[0]}, and a phase runs once: write it out")
        template = entry if task["template"] is None else _template(templates, task["template"])
        yield _task(task, template, spec, known)


def _template(templates: Mapping[str, Any], name: Any) -> Mapping[str, Any]:
    if name not in templates:
        raise FormatError(f"it has no template {name!r}, only {', '.join(templates)}")
    found: Mapping[str, Any] = templates[name]
    return found


# --- Which tasks there are, and in which order ---------------------------------------------------


def _dag(entry: Mapping[str, Any], name: str) -> Iterator[Mapping[str, Any]]:
    """Yield tasks with their ``needs``. The template of a lone one is None: that of the entry."""
    if "dag" in entry:
        for task in entry["dag"]["tasks"]:
            yield {**task, "needs": _needs(task)}
    elif "steps" in entry:
        before: tuple[str, ...] = ()
        for group in entry["steps"]:
            for step in group:
                yield {**step, "needs": before}
            before = tuple(step["name"] for step in group)
    else:
        yield {"name": name, "template": None, "needs": ()}


def _needs(task: Mapping[str, Any]) -> tuple[str, ...]:
    if depends := task.get("depends"):
        if _ALL_OF.fullmatch(depends) is None:
            raise FormatError(
                f"{task['name']} depends on {depends!r}, and a phase waits for all that it needs"
            )
        words = [each.strip() for each in depends.split("&&")]
        return tuple(each.removesuffix(".Succeeded") for each in words)
    return tuple(task.get("dependencies") or ())


# --- What each of them runs ----------------------------------------------------------------------


def _task(
    task: Mapping[str, Any], template: Mapping[str, Any], spec: Mapping[str, Any],
    known: Mapping[str, str],
) -> Task:  # fmt: skip
    name = task["name"]
    given = {**dict(_parameters(template, "inputs")), **dict(_parameters(task, "arguments"))}
    given = {key: _filled(value, known, name) for key, value in given.items()}
    known = {**known, **{f"inputs.parameters.{key}": value for key, value in given.items()}}
    pod = {
        "containers": [_filled(_container(template, name), known, name)],
        "nodeSelector": template.get("nodeSelector") or spec.get("nodeSelector") or {},
    }
    limit_s = template.get("activeDeadlineSeconds") or spec.get("activeDeadlineSeconds")
    limits: dict[str, Any] = {"activeDeadlineSeconds": limit_s}
    if (retries := (template.get("retryStrategy") or {}).get("limit")) is not None:
        limits["backoffLimit"] = int(retries)
    handed = [
        f"artifacts of {name} are left out: write them as its inputs and outputs"
        for part in ("inputs", "outputs")
        if (template.get(part) or {}).get("artifacts")
    ]
    return Task(
        name=name,
        template={"metadata": template.get("metadata") or {}, "spec": pod},
        limits=limits,
        needs=task["needs"],
        lost=tuple(handed[:1]),
    )


def _container(template: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    if "container" in template:
        container: Mapping[str, Any] = template["container"]
        return container
    if "script" not in template:
        raise FormatError(f"{name} runs neither container nor script: give one that does")
    script = template["script"]
    command: Sequence[str] = script["command"]
    if str(command[0]).rpartition("/")[2] not in _SHELLS:
        raise FormatError(f"{name} has a script for {command[0]!r}: put it into its image")
    return {**script, "command": [*command, "-c", script["source"]]}


def _parameters(holder: Mapping[str, Any], part: str) -> Iterator[tuple[str, str]]:
    for each in (holder.get(part) or {}).get("parameters") or ():
        if (value := each.get("value", each.get("default"))) is not None:
            yield each["name"], str(value)


def _filled(value: Any, known: Mapping[str, str], name: str) -> Any:
    """Return plain values with parameters in their places."""
    if isinstance(value, Mapping):
        return {key: _filled(each, known, name) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, known, name) for each in value]
    if isinstance(value, str):
        return _PLACE.sub(lambda at: _known(at[1], known, name), value)
    return value


def _known(place: str, known: Mapping[str, str], name: str) -> str:
    if place not in known:
        raise FormatError(f"{name} takes {place}, which is known only as the workflow runs")
    return known[place]
