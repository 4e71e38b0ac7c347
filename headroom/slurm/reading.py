"""What ``squeue --json`` and ``sinfo --json`` say, as the contract has it. Pure.

Of 22.05 and later: numbers are plain, or ``{"set", "infinite", "number"}``; states are words, or
lists of them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headroom.schedulers.contract import (
    EndedAs,
    JobState,
    NodeState,
    SchedulerJob,
    SchedulerNode,
)
from headroom.slurm import marks

__all__ = [
    "NODE_MARK",
    "NodeFacts",
    "behind",
    "facts_of",
    "gpus_in",
    "hostnames",
    "job_of",
    "jobs_of",
    "node_of",
    "nodes_of",
    "only_nodes",
]

#: What the reason of a node begins with that we have drained.
NODE_MARK = "headroom: "
# A type may be a slice of a GPU: "1g.10gb", "a100_3g.20gb".
_GPU = re.compile(r"(?:^|[,/:])gpu(?::(\d*[A-Za-z][\w.-]*))?(?::(\d+))?(?=[,(]|$)")
_INDICES = re.compile(r"gpu(?::[\w.-]+)?:\d+\(IDX:([\d,-]+)\)")
_TASKS = re.compile(r"^([\d,:-]+?)(?:%\d+)?$")
_BRACKETS = re.compile(r"([^,\[\]]+)(?:\[([^\]]+)\])?([^,\[\]]*)")
#: Elements of one array that are told of by themselves.
_MOST_TASKS = 2000
_DOWN = ("DOWN", "FAIL", "NOT_RESPONDING", "POWERED_DOWN", "POWERING", "UNKNOWN", "FUTURE")
_ENDS = {
    "COMPLETED": EndedAs.SUCCEEDED,
    "CANCELLED": EndedAs.CANCELLED,
    "TIMEOUT": EndedAs.TIMED_OUT,
    "DEADLINE": EndedAs.CANCELLED,
    "NODE_FAIL": EndedAs.LOST,
    "BOOT_FAIL": EndedAs.LOST,
    "PREEMPTED": EndedAs.LOST,
    "REVOKED": EndedAs.CANCELLED,
    "FAILED": EndedAs.FAILED,
    "OUT_OF_MEMORY": EndedAs.FAILED,
}
_AFTER_OK = re.compile(r"afterok:(\d+)\(unfulfilled\)")
_Names = Callable[[str], str]


@dataclass(frozen=True)
class NodeFacts:
    """What decides which jobs a node may run."""

    name: str
    partitions: frozenset[str]
    features: frozenset[str]


def facts_of(rows: Iterable[Mapping[str, Any]]) -> list[NodeFacts]:
    """Return the facts of all nodes, by Slurm's names."""
    return [
        NodeFacts(
            row["name"],
            frozenset(_listed(row.get("partitions"))),
            frozenset(_listed(row.get("active_features"))),
        )
        for row in rows
    ]


def only_nodes(row: Mapping[str, Any], facts: Sequence[NodeFacts]) -> list[str]:
    """Return the nodes that a job may run on, by its partitions, features and lists; empty: all.

    Of features it takes names with "&", or with "|"; what is more than that is Slurm's to say.
    """
    partitions = set(_listed(row.get("partition")))
    asked = str(row.get("features") or "")
    is_plain = re.fullmatch(r"[\w.&|-]*", asked) and not ("&" in asked and "|" in asked)
    features = set(filter(None, re.split(r"[&|]", asked))) if is_plain else set()
    excluded = set(hostnames(row.get("excluded_nodes") or ""))
    mark = marks.read(row.get("admin_comment") or "")
    # Under a lease the list is ours.
    required = hostnames(row.get("required_nodes") or "") if mark is None or mark.is_hold else []
    wanted = set(required) if len(required) >= _nodes_wanted(row)[1] else set()
    found = [
        each.name
        for each in facts
        if (not partitions or partitions & each.partitions)
        and (not features or _has(each.features, features, any_of="|" in asked))
        and each.name not in excluded
        and (not wanted or each.name in wanted)
    ]
    return [] if len(found) == len(facts) else found


def _has(has: frozenset[str], wanted: set[str], *, any_of: bool) -> bool:
    return bool(has & wanted) if any_of else wanted <= has


def _listed(value: Any) -> list[str]:
    words = value.split(",") if isinstance(value, str) else value or []
    return [str(word) for word in words if word]


def jobs_of(
    rows: Iterable[Mapping[str, Any]], name: _Names = str, facts: Sequence[NodeFacts] = ()
) -> list[SchedulerJob]:
    """Return the jobs that ask for GPUs, and phases of pipelines, which we hold without any, too.

    ``name`` gives the inventory's name of a node.
    """
    found = []
    for row in rows:
        # Parts of a heterogeneous job start together or not at all: they are left alone.
        if _number(row.get("het_job_id")) or not (_gpus(row) or _is_ours(row)):
            continue
        found += [job_of(row, ref, name, facts) for ref in _refs(row)]
    return found


def job_of(
    row: Mapping[str, Any], ref: str, name: _Names = str, facts: Sequence[NodeFacts] = ()
) -> SchedulerJob:
    """Return one job, or one element of an array that waits."""
    fewest, wanted = _nodes_wanted(row)
    per_node, total, model = _shape(row, wanted)
    states = _states(row.get("job_state"))
    state = _state(row, states)
    mark = marks.read(row.get("admin_comment") or "")
    restarts = int(_number(row.get("restart_cnt")) or 0)
    is_current = mark is not None and mark.restarts == restarts
    runs = state in (JobState.RUNNING, JobState.SUSPENDED, JobState.ENDING)
    nodes = [name(each) for each in hostnames(row.get("nodes") or "")] if runs else []
    limit_min = _number(row.get("time_limit"))
    return SchedulerJob(
        ref=ref,
        state=state,
        restarts=restarts,
        lease=mark.lease if mark is not None and is_current else "",
        name=_word(row.get("name")),
        user=_word(row.get("user_name")),
        account=_word(row.get("account")),
        partition=_word(row.get("partition")),
        comment=_word(row.get("comment"), 1000).strip('"'),
        submitted_at=float(_number(row.get("submit_time")) or 0),
        gpus=total,
        nodes_wanted=wanted,
        min_nodes=fewest if fewest < wanted else None,
        gpus_per_node=per_node,
        cores=0 if total else _cores(row, fewest),
        mem_bytes=None if total else _mem_bytes(row, fewest),
        model=model,
        only_nodes=[] if runs else [name(each) for each in only_nodes(row, facts)],
        time_limit_s=limit_min * 60.0 if limit_min else None,
        can_requeue=bool(row.get("requeue")) and bool(row.get("batch_flag")),
        why=_why(row, states),
        nodes=nodes,
        gpu_indices=_indices(row, nodes) if runs else {},
        started_at=_started_at(row) if runs or state is JobState.ENDED else None,
        ended_at=float(_number(row.get("end_time")) or 0) or None
        if state is JobState.ENDED
        else None,
        ended_as=_ended_as(states) if state is JobState.ENDED else None,
        exit_code=_exit_code(row) if state is JobState.ENDED else None,
    )


def _is_ours(row: Mapping[str, Any]) -> bool:
    """Say whether a job waits for us, or has begun under a lease of ours.

    One that an administrator has started past us is left to Slurm, as others without GPUs.
    """
    mark = marks.read(row.get("admin_comment") or "")
    runs = _states(row.get("job_state")) & {"RUNNING", "SUSPENDED"}
    return mark is not None and not (mark.is_hold and runs)


def _refs(row: Mapping[str, Any]) -> list[str]:
    array, task = _number(row.get("array_job_id")), row.get("array_task_id")
    if not array:
        return [str(row["job_id"])]
    found = _number(task)
    if found is not None and not (isinstance(task, Mapping) and not task.get("set", True)):
        return [f"{int(array)}_{int(found)}"]
    tasks = _TASKS.match(row.get("array_task_string") or "")
    return [f"{int(array)}_{each}" for each in _range(tasks[1] if tasks else "")[:_MOST_TASKS]]


# --- Shape ---------------------------------------------------------------------------------------


def _gpus(row: Mapping[str, Any]) -> int:
    return _shape(row, _nodes_wanted(row)[1])[1]


def _nodes_wanted(row: Mapping[str, Any]) -> tuple[int, int]:
    """Return the fewest nodes that a job runs on, and the most that it wants."""
    fewest = max(int(_number(row.get("node_count")) or 1), 1)
    return fewest, max(int(_number(row.get("max_nodes")) or 0), fewest)


def _shape(row: Mapping[str, Any], nodes: int) -> tuple[int | None, int, str]:
    """Return GPUs on each node (None: as it comes), GPUs in all, and their model."""
    per_node, model = gpus_in(row.get("tres_per_node"))
    if per_node:
        return per_node, per_node * nodes, model
    total, model = gpus_in(row.get("tres_per_job"))
    if total:
        return None, total, model
    per_task, model = gpus_in(row.get("tres_per_task"))
    if per_task:
        return None, per_task * max(int(_number(row.get("tasks")) or 1), 1), model
    per_socket, model = gpus_in(row.get("tres_per_socket"))
    sockets = int(_number(row.get("sockets_per_node")) or 1)
    return (per_socket * sockets or None), per_socket * sockets * nodes, model


def _cores(row: Mapping[str, Any], nodes: int) -> int:
    """Return the cores of each node."""
    return max(math.ceil((_number(row.get("cpus")) or 0) / nodes), 1)


def _mem_bytes(row: Mapping[str, Any], nodes: int) -> int | None:
    """Return the memory of each node, which Slurm has in MiB; None: as it comes."""
    of_core = (_number(row.get("memory_per_cpu")) or 0) * _cores(row, nodes)
    return int((_number(row.get("memory_per_node")) or of_core) * 2**20) or None


def gpus_in(tres: Any) -> tuple[int, str]:
    """Return how many GPUs ``gres:gpu:h100:4`` asks for, and of which model; empty: any."""
    total, model = 0, ""
    for found in _GPU.finditer(tres or ""):
        total += int(found[2] or 1)
        model = found[1] or model
    return total, model


def _indices(row: Mapping[str, Any], nodes: list[str]) -> dict[str, list[int]]:
    detail = row.get("gres_detail") or []
    found = {}
    for node, text in zip(nodes, detail, strict=False):
        if match := _INDICES.search(str(text)):
            found[node] = _range(match[1])
    return found


# --- State ---------------------------------------------------------------------------------------


def _state(row: Mapping[str, Any], states: frozenset[str]) -> JobState:
    if "COMPLETING" in states or ("CONFIGURING" in states and "RUNNING" not in states):
        return JobState.ENDING if "COMPLETING" in states else JobState.RUNNING
    if "RUNNING" in states:
        return JobState.RUNNING
    if "SUSPENDED" in states or "STOPPED" in states:
        return JobState.SUSPENDED
    if "PENDING" not in states and "REQUEUED" not in states:
        return JobState.ENDED
    if int(_number(row.get("priority")) or 0) != 0:
        return JobState.RELEASED
    mark = marks.read(row.get("admin_comment") or "")
    is_ours = mark is not None and not mark.by_owner
    waits = bool(row.get("dependency")) or _begins_later(row)
    return JobState.HELD if is_ours and not waits else JobState.BLOCKED


def behind(row: Mapping[str, Any]) -> list[str]:
    """Return the jobs whose good end is all that a job of ours waits for; empty: it has no such.

    Slurm looks once a minute whether they have ended where a job is held, and at once where one is
    released.
    """
    states = _states(row.get("job_state"))
    if _state({**row, "dependency": ""}, states) is not JobState.HELD:
        return []
    terms = [_AFTER_OK.fullmatch(each) for each in str(row.get("dependency") or "").split(",")]
    refs = [each[1] for each in terms if each is not None]
    return refs if len(refs) == len(terms) else []


def _begins_later(row: Mapping[str, Any]) -> bool:
    return str(row.get("state_reason") or "") == "BeginTime"


def _why(row: Mapping[str, Any], states: frozenset[str]) -> str:
    if row.get("dependency") and "PENDING" in states:
        return _word(f"it waits for {row['dependency']}", 1000)
    mark = marks.read(row.get("admin_comment") or "")
    if mark is not None and mark.by_owner and "PENDING" in states:
        return "its owner holds it"
    said = [_word(row.get("state_description"), 400), _word(row.get("state_reason"), 200)]
    words = [each for each in said if each and each != "None"]
    ended = [each for each in _ENDS if each in states]
    return ", ".join([*ended, *words])


def _ended_as(states: frozenset[str]) -> EndedAs:
    return next((end for word, end in _ENDS.items() if word in states), EndedAs.LOST)


def _exit_code(row: Mapping[str, Any]) -> int | None:
    code = row.get("exit_code")
    if isinstance(code, Mapping):
        signal = code.get("signal") or {}
        number = signal.get("signal_id") or (signal.get("id") or {}).get("number")
        if number:
            return 128 + int(number)
        found = _number(code.get("return_code"))
        return None if found is None else int(found)
    return None if code is None else int(code) >> 8 or (int(code) & 0x7F and 128 + int(code))


def _started_at(row: Mapping[str, Any]) -> float | None:
    return float(_number(row.get("start_time")) or 0) or None


# --- Nodes ---------------------------------------------------------------------------------------


def nodes_of(rows: Iterable[Mapping[str, Any]], name: _Names = str) -> list[SchedulerNode]:
    """Return all nodes, by the inventory's names."""
    return [node_of(row, name) for row in rows]


def node_of(row: Mapping[str, Any], name: _Names = str) -> SchedulerNode:
    """Return one node."""
    states = _states(row.get("state")) | _states(row.get("state_flags"))
    reason = _word(row.get("reason"), 1000)
    is_drained = any(each.startswith(("DRAIN", "MAINT")) for each in states)
    is_down = any(each.startswith(_DOWN) for each in states)
    state = NodeState.DRAINED if is_drained else NodeState.UP
    if is_down:
        is_off = reason.lower().startswith("off") or "POWERED_DOWN" in states
        state = NodeState.OFF if is_off else NodeState.DOWN
    is_ours = is_drained and reason.startswith(NODE_MARK)
    return SchedulerNode(
        node=name(row["name"]),
        state=state,
        reason=reason.removeprefix(NODE_MARK),
        drained_by=_word(row.get("reason_set_by_user")) if is_drained else "",
        is_ours=is_ours,
    )


# --- Words ---------------------------------------------------------------------------------------


def hostnames(text: str) -> list[str]:
    """Return the nodes that ``n[1-3,07],m2`` names, in order."""
    found: list[str] = []
    for part in _BRACKETS.finditer(text):
        head, inside, tail = part[1], part[2], part[3]
        if inside is None:
            found.append(head)
            continue
        for each in inside.split(","):
            first, _, last = each.partition("-")
            width = len(first)
            numbers = range(int(first), int(last or first) + 1)
            found += [f"{head}{number:0{width}d}{tail}" for number in numbers]
    return found


def _range(text: str) -> list[int]:
    """Return the numbers of ``0-3,7,10-20:5``."""
    found: list[int] = []
    for each in filter(None, text.split(",")):
        span, _, step = each.partition(":")
        first, _, last = span.partition("-")
        found += range(int(first), int(last or first) + 1, int(step or 1))
    return found


def _states(value: Any) -> frozenset[str]:
    if isinstance(value, str):
        return frozenset(each for each in re.split(r"[+,\s]", value.upper().strip("*~#")) if each)
    return frozenset(str(each).upper() for each in value or ())


def _number(value: Any) -> float | None:
    if isinstance(value, Mapping):
        if not value.get("set") or value.get("infinite"):
            return None
        return float(value.get("number", 0))
    if value is None or value == "" or isinstance(value, str):
        return None
    return float(value)


def _word(value: Any, longest: int = 200) -> str:
    return str(value or "").replace("\x00", "")[:longest]
