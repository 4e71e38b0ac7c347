"""Jobs that go on in another cluster: what they are submitted with, and submitting them there.

Who submits looks before whether the job is there already: its comment says by which move it came,
so a bridge that dies between two steps submits nothing a second time.
"""

from __future__ import annotations

import logging
import pwd
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from headroom.schedulers import words
from headroom.schedulers.contract import MAX_SCRIPT, JobState, Parcel, SchedulerJob
from headroom.slurm.commands import Refused, Slurm, SlurmError

__all__ = ["options_of", "pack", "submit", "told_by_move"]

logger = logging.getLogger(__name__)

#: Options of sbatch that come from a row of squeue, and its fields: words or numbers as they are.
_PLAIN = {
    "job-name": "name",
    "account": "account",
    "partition": "partition",
    "qos": "qos",
    "wckey": "wckey",
    "licenses": "licenses",
    "constraint": "features",
    "exclude": "excluded_nodes",
    "chdir": "current_working_directory",
    "output": "standard_output",
    "error": "standard_error",
    "input": "standard_input",
    "comment": "comment",
    "ntasks": "tasks",
    "cpus-per-task": "cpus_per_task",
    "ntasks-per-node": "tasks_per_node",
    "time": "time_limit",
    "mem": "memory_per_node",
    "mem-per-cpu": "memory_per_cpu",
}
#: Options that ask for GPUs and the like, and their fields: ``gres:gpu:h100:4``.
_TRES = {
    "gres": "tres_per_node",
    "gpus": "tres_per_job",
    "gpus-per-task": "tres_per_task",
    "gpus-per-socket": "tres_per_socket",
}
_TAKEN = frozenset({*_PLAIN, *_TRES, "nodes"})
_KIND = re.compile(r"(^|,)gres[:/]")
_GPUS = re.compile(r"(^|,)gres[:/]gpu:")


# --- From here -----------------------------------------------------------------------------------


def pack(refs: Iterable[str], slurm: Slurm) -> dict[str, Parcel]:
    """Return what jobs are submitted with elsewhere. Those that cannot go are left out."""
    rows = {str(row["job_id"]): row for row in slurm.jobs()}
    found = {}
    for ref in refs:
        if ref not in rows:
            continue
        try:
            script = slurm.script(ref)
        except SlurmError as error:
            logger.warning("job %s has no script that can be read: %s", ref, error)
            continue
        if len(script.encode()) > MAX_SCRIPT or "\0" in script:
            logger.warning("the script of job %s is too long to go elsewhere", ref)
            continue
        user = str(rows[ref]["user_name"])
        found[ref] = Parcel(user=user, script=script, options=options_of(rows[ref]))
    return found


def options_of(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the options of sbatch that ask for what a job asks for. Pure."""
    found = {name: _word(row.get(field)) for name, field in _PLAIN.items()}
    for name, field in _TRES.items():
        asked = str(row.get(field) or "")
        # --gres names its kind, the others are of GPUs alone.
        found[name] = (_KIND if name == "gres" else _GPUS).sub(r"\1", asked)
    fewest, most = (_word(row.get(field)) for field in ("node_count", "max_nodes"))
    found["nodes"] = f"{fewest}-{most}" if fewest and most else fewest
    if found["ntasks"] and int(found["ntasks"]) <= int(fewest or 1):
        # Slurm's own: nobody has asked for so few.
        found["ntasks"] = ""
    return {name: value for name, value in found.items() if value}


def _word(value: Any) -> str:
    """Return a field as a word; empty: it says nothing."""
    if isinstance(value, Mapping):
        value = value.get("number") if value.get("set") and not value.get("infinite") else None
    return "" if value in (None, "", 0) else str(value).strip('"')


# --- To here -------------------------------------------------------------------------------------


def told_by_move(jobs: Iterable[SchedulerJob]) -> dict[str, SchedulerJob]:
    """Return the jobs that came by a move, by its key; of several that which is not over."""
    found: dict[str, SchedulerJob] = {}
    for job in jobs:
        key = words.moved_by(job.comment)
        if key and (key not in found or job.state is not JobState.ENDED):
            found[key] = job
    return found


def submit(
    wanted: Mapping[str, Parcel], jobs: Collection[SchedulerJob], slurm: Slurm
) -> dict[str, str]:
    """Submit what is not there yet, as its owners; return why not, by key, where Slurm refuses.

    ``jobs``: all that Slurm has just now.
    """
    there, refused = told_by_move(jobs), {}
    for key, parcel in wanted.items():
        if key in there:
            if there[key].state is JobState.ENDED:
                refused[key] = f"it came, and is over there: {there[key].why or 'it has ended'}"
            continue
        try:
            ref = slurm.submit(*_call(key, parcel))
        except Refused as error:
            refused[key] = str(error)[:500]
            logger.warning("what comes by %s is refused: %s", key, error)
        else:
            logger.info("job %s came by %s", ref, key)
    return refused


def _call(key: str, parcel: Parcel) -> tuple[list[str], str, dict[str, str]]:
    """Return options, script and environment. Raises :class:`Refused`.

    The server is not believed in all: no job is submitted for root, nor with other options.
    """
    try:
        owner = pwd.getpwnam(parcel.user)
    except KeyError:
        raise Refused(f"there is no user {parcel.user!r} here") from None
    if owner.pw_uid == 0:
        raise Refused("jobs of root do not move")
    strange = parcel.options.keys() - _TAKEN
    if strange:
        raise Refused(f"unknown options: {', '.join(sorted(strange))}")
    given = {**parcel.options, "comment": words.came_by(key, parcel.options.get("comment", ""))}
    options = [f"--{name}={value}" for name, value in sorted(given.items())]
    # What it wrote before stays.
    options += [f"--uid={owner.pw_uid}", f"--gid={owner.pw_gid}", "--requeue", "--open-mode=append"]
    env = {"HOME": owner.pw_dir, "USER": owner.pw_name, "LOGNAME": owner.pw_name,
           "SHELL": owner.pw_shell}  # fmt: skip
    return options, parcel.script, env
