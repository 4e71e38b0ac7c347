"""A job for this terminal: it waits in the queue, opens a shell once it runs, and ends with it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from headroom.errors import HeadroomError, Refused, Unavailable
from headroom.jobs import terminal, words
from headroom.jobs.asking import Answer, Jobs

__all__ = ["PLACEHOLDER", "run", "spec_of"]

#: What a job runs for itself while somebody works in it.
PLACEHOLDER = ("sleep", "infinity")
#: Exit status of what never opened.
NOT_OPENED = 126
_EVERY_S = 2.0
#: Machines tell that a part runs some seconds before or after the job is said to.
_TRIES = 15

Say = Callable[[str], None]
Sleep = Callable[[float], None]


def spec_of(
    *,
    project: str,
    job_class: str,
    gpus: int,
    models: Sequence[str],
    walltime_s: float,
    name: str,
    part: str = "",
) -> dict[str, Any]:
    """Return the specification of a job that holds GPUs, or the slice ``part``, for a terminal."""
    gang: dict[str, Any] = {"gpus": gpus, **({"models": list(models)} if models else {})}
    if part:
        gang["slice"] = part
    phase = {
        "name": "shell", "gang": gang, "walltime_s": walltime_s, "command": list(PLACEHOLDER),
        "restart": {"tolerance": "none"},
    }  # fmt: skip
    spec = {"project": project, "class": job_class, "interactive": True, "phases": [phase]}
    return spec | ({"name": name} if name else {})


def run(jobs: Jobs, job: str, command: Sequence[str], say: Say, sleep: Sleep) -> int:
    """Wait until ``job`` runs, and pass this terminal on to it; return the exit status.

    The job ends with the terminal: the server sees to that. Whatever else this ends by cancels it.
    """
    code = terminal.BROKEN
    try:
        code = (
            _opened(jobs, job, command, sleep) if _has_begun(jobs, job, say, sleep) else NOT_OPENED
        )
        return code
    finally:
        if code == terminal.BROKEN:
            # The server may be away: then it ends the job once it misses the terminal.
            with contextlib.suppress(HeadroomError):
                jobs.act(job, "cancel", {"why": "its terminal broke off"})


def _has_begun(jobs: Jobs, job: str, say: Say, sleep: Sleep) -> bool:
    """Wait for a job to run, and say what keeps it whenever that changes; False: it is over."""
    told = ""
    while True:
        try:
            found = jobs.job(job)
            if found["state"] not in ("queued", "running"):
                say(f"{job} is {found['state']} before it began")
                return False
            if any(phase["state"] == "running" for phase in found["phases"]):
                return True
            token, text = _why(jobs, job)
        except Unavailable as exc:
            token, text = "unavailable", f"waiting for the server: {exc}"
        if token != told:
            say(text)
            told = token
        sleep(_EVERY_S)


def _why(jobs: Jobs, job: str) -> tuple[str, str]:
    """Return the token of what keeps a job, and a line about it."""
    waits = next(iter(jobs.explain(job)["phases"]), None)
    if waits is None or not waits["reasons"]:
        return "starting", f"{job} begins"
    return waits["reasons"][0]["token"], _waits(job, waits)


def _waits(job: str, phase: Answer) -> str:
    text = f"{job} waits: {phase['reasons'][0]['sentence']}"
    estimate = phase.get("estimate")
    if estimate is None:
        return text
    return f"{text}; {words.likely(words.estimated(estimate), estimate['basis'])}"


def _opened(jobs: Jobs, job: str, command: Sequence[str], sleep: Sleep) -> int:
    for left in reversed(range(_TRIES)):
        try:
            return terminal.run(jobs, job, command, {})
        except Refused as exc:
            if exc.error.code != "not_running" or not left:
                raise
            sleep(_EVERY_S)
    raise AssertionError("the last try returns or raises")
