"""Slurm's command line: JSON for what is read, ``scontrol`` and ``scancel`` for what is done.

No shell is asked, every call has its time, and many changes are one process: ``scontrol`` takes
them line by line.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from headroom.errors import HeadroomError

__all__ = ["Pinned", "Refused", "Slurm", "SlurmError"]

#: Refs that one call names at most: a command line is bounded.
_AT_ONCE = 500
#: So many are changed by a process each: given line by line, texts keep the quotes around them.
_FEW = 8
#: Columns of squeue: an id, a count, and what an AdminComment of ours has at most, characters.
_ID, _COUNT, _COMMENT = 64, 12, 700
T = TypeVar("T", bound="_Answer")


class _Answer(msgspec.Struct):
    errors: list[dict[str, Any]] = []


class _Jobs(_Answer):
    jobs: list[msgspec.Raw] = []


class _Nodes(_Answer):
    nodes: list[dict[str, Any]] = []


@dataclass(frozen=True)
class Pinned:
    """Where a job is to run, as slurmctld has it. ``number``: Slurm's own of an array's element."""

    number: str
    restarts: int
    nodes_asked: str
    admin_comment: str


class SlurmError(HeadroomError):
    """Slurm cannot be asked, or refuses."""


class Refused(SlurmError):
    """Slurm does not take a job as it is."""


@dataclass(frozen=True)
class Slurm:
    """One cluster, as the environment (``SLURM_CONF``) names it."""

    timeout_s: float = 20.0
    env: Mapping[str, str] = field(default_factory=dict)

    def jobs(self) -> list[dict[str, Any]]:
        """Return all jobs that slurmctld has, those that have ended lately too."""
        return [msgspec.json.decode(row) for row in self.job_rows()]

    def job_rows(self) -> list[bytes]:
        """Return the JSON text of each job, for who needs only those that have changed."""
        return [bytes(row) for row in self._json(_Jobs, "squeue", "--json").jobs]

    def pinned(self, refs: Sequence[str], longest: int) -> dict[str, Pinned]:
        """Return where jobs are to run, by ref, of those that there are.

        A list of nodes that is longer than ``longest`` is cut. It costs a tenth of reading all jobs
        as JSON. What users write stands in no column of it, so that none can be mistaken.
        """
        widths = {"JobArrayID": _ID, "JobID": _ID, "RestartCnt": _COUNT, "ReqNodes": longest + 1}
        columns = ",".join(f"{name}:{width}" for name, width in widths.items())
        found = {}
        for first in range(0, len(refs), _AT_ONCE):
            some = ",".join(refs[first : first + _AT_ONCE])
            # It fails where it knows none of them.
            done = self._done(
                ["squeue", "-h", "-a", "-j", some, "-O", f"{columns},admin_comment:{_COMMENT}"]
            )
            for line in done.stdout.splitlines():
                cells, at = [], 0
                for width in widths.values():
                    cells.append(line[at : at + width].strip())
                    at += width
                ref, number, restarts, nodes = cells
                found[ref] = Pinned(number, int(restarts or 0), nodes, line[at:].strip())
        return found

    def nodes(self) -> list[dict[str, Any]]:
        """Return all nodes."""
        return self._json(_Nodes, "sinfo", "--json").nodes

    def version(self) -> str:
        """Return the version of the tools, such as ``22.05.8``."""
        return self._run("scontrol", "--version").strip().removeprefix("slurm ")

    def update_jobs(self, changes: Mapping[str, Mapping[str, str]]) -> None:
        """Set fields of jobs, by ref. What fails is left: the next look at them shows it."""
        if len(changes) <= _FEW:
            for ref, given in changes.items():
                self._try(
                    "scontrol", "update", f"jobid={ref}", *(f"{k}={v}" for k, v in given.items())
                )
            return
        lines = [
            " ".join([f"update jobid={ref}", *(f"{k}={_word(v)}" for k, v in given.items())])
            for ref, given in changes.items()
        ]
        self._lines(lines)

    def update_node(self, node: str, **given: str) -> None:
        """Set fields of a node."""
        self._run("scontrol", "update", f"nodename={node}", *(f"{k}={v}" for k, v in given.items()))

    def scontrol(self, verb: str, refs: Sequence[str], option: str = "") -> None:
        """Do ``verb`` (hold, release, suspend, …) with jobs; those that cannot are left."""
        for first in range(0, len(refs), _AT_ONCE):
            some = ",".join(refs[first : first + _AT_ONCE])
            self._try("scontrol", verb, *([option] if option else []), some)

    def cancel(self, refs: Sequence[str]) -> None:
        """End jobs for good."""
        for first in range(0, len(refs), _AT_ONCE):
            self._try("scancel", *refs[first : first + _AT_ONCE])

    def signal(self, ref: str, signal: str) -> None:
        """Send a signal to the batch script of a job."""
        self._try("scancel", "--batch", f"--signal={signal}", ref)

    def comment(self, ref: str) -> str:
        """Return the comment of a job. Raises :class:`SlurmError`."""
        return self._run("squeue", "-h", "-j", ref, "-o", "%k").strip()

    def script(self, ref: str) -> str:
        """Return the batch script of a job. Raises :class:`SlurmError`."""
        said = self._run("scontrol", "write", "batch_script", ref, "-")
        # It ends the script with a line of its own.
        return said.removesuffix("\n")

    def submit(self, options: Sequence[str], script: str, env: Mapping[str, str]) -> str:
        """Submit a batch script whose job sees ``env`` and little else; return its id.

        Raises :class:`Refused` where Slurm says no. Another SlurmError leaves open whether it took
        the job.
        """
        done = self._done(["sbatch", "--parsable", *options], script, env=self._plain_env(env))
        if done.returncode:
            said = (done.stderr or done.stdout).strip()
            raise Refused(said.removeprefix("sbatch: error: ")[:500])
        return done.stdout.strip().split(";")[0]

    def _plain_env(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return ``env`` with what sbatch itself needs: the bridge's own goes to no job."""
        known = {**os.environ, **self.env}
        return {**{name: known[name] for name in ("PATH", "SLURM_CONF") if name in known}, **env}

    # --- Processes --------------------------------------------------------------------------------

    def _json(self, kind: type[T], *argv: str) -> T:
        try:
            found = msgspec.json.decode(self._run(*argv).encode(), type=kind)
        except msgspec.MsgspecError as error:
            raise SlurmError(f"{argv[0]} prints no JSON: {error}") from error
        if found.errors:
            raise SlurmError(f"{argv[0]}: {found.errors[0].get('error') or found.errors[0]}")
        return found

    def _lines(self, lines: Sequence[str]) -> str:
        if not lines:
            return ""
        done = self._done(["scontrol"], "\n".join([*lines, "quit", ""]))
        return (done.stdout + done.stderr).strip()

    def _try(self, *argv: str) -> str:
        done = self._done(argv)
        return (done.stdout + done.stderr).strip()

    def _run(self, *argv: str) -> str:
        done = self._done(argv)
        if done.returncode:
            said = (done.stderr or done.stdout).strip()[:500]
            raise SlurmError(f"{argv[0]} ends with {done.returncode}: {said}")
        return done.stdout

    def _done(
        self, argv: Sequence[str], given: str = "", env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        # Indices of arrays are told whole.
        env = env or {**os.environ, "SLURM_BITSTR_LEN": "0", "LC_ALL": "C", **self.env}
        try:
            return subprocess.run(  # noqa: S603 - no shell, and words of our own making
                argv, input=given, capture_output=True, text=True, env=env,
                timeout=self.timeout_s, check=False, errors="replace",
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise SlurmError(f"{argv[0]} did not answer in {self.timeout_s:g} s") from error
        except OSError as error:
            raise SlurmError(f"{argv[0]} cannot be run: {error}") from error


def _word(value: str) -> str:
    """Return ``value`` as one word of a line. Values with spaces keep their quotes in Slurm."""
    return f'"{value}"' if " " in value else value
