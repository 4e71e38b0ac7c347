"""A real Slurm on this machine, on the loopback alone: munged, slurmctld, and a slurmd a node."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headroom.slurm.commands import Slurm

__all__ = ["PATIENCE_S", "SlurmCluster", "is_installed", "slurm_cluster"]

_DEPLOY = Path(__file__).resolve().parents[2] / "deploy" / "slurm"
#: Who submits: anybody but root, whose jobs the hold lets pass.
_USER = "nobody"
_SBIN = "/usr/sbin:/sbin:/usr/local/sbin"
_CPUS = 32
#: What has not come about by then hangs, s. On a busy machine a round of a bridge and a cycle takes
#: 20 s, and what is asked for after 30 s of overload four of them.
PATIENCE_S = 240.0
_CONF = """\
ClusterName={name}
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/munge.sock,cred_expire=6
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmctldPort={port}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc={folder}/jobcomp.log
MailProg=/bin/true
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_min_interval=100000,bf_interval=1
PriorityType=priority/basic
JobRequeue=1
RequeueExit=99
ReturnToService=2
SlurmdParameters=config_overrides
SlurmctldTimeout=10
SlurmdTimeout={slurmd_timeout_s}
KillWait=2
MinJobAge=300
MaxJobCount=20000
TreeWidth=64
GresTypes=gpu
{plugins}
{nodes}
PartitionName=gpu Nodes={with_gpus} Default=YES MaxTime=INFINITE State=UP
PartitionName=debug Nodes={with_gpus} MaxTime=INFINITE State=UP
{more_partitions}
"""
#: What Headroom adds.
_PLUGINS = """\
JobSubmitPlugins=lua
PrologSlurmctld={folder}/prolog
Prolog={folder}/node_prolog
Epilog={folder}/node_epilog
PrologFlags=Alloc
"""


def is_installed() -> bool:
    """Say whether Slurm's programs are on this machine, and we may start them."""
    needed = ("slurmctld", "slurmd", "squeue", "munged")
    return os.geteuid() == 0 and all(_which(name) for name in needed)


def _which(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:{_SBIN}")


@dataclass
class SlurmCluster:
    """One cluster, whose nodes are called as the inventory calls them."""

    folder: Path
    nodes: Sequence[str]
    port: int
    when_away: str = "closed"
    slurmd_timeout_s: int = 30
    gpus: int = 4
    #: as it was before Headroom
    is_plain: bool = False
    name: str = "test"
    #: without GPUs, in the partition "cpu"
    cpu_nodes: Sequence[str] = ()
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def run_dir(self) -> Path:
        return self.folder / "run"

    @property
    def env(self) -> dict[str, str]:
        return {
            "SLURM_CONF": str(self.folder / "slurm.conf"),
            "PATH": f"{os.environ['PATH']}:{_SBIN}",
        }

    @property
    def slurm(self) -> Slurm:
        return Slurm(env=self.env)

    # --- Up and down ------------------------------------------------------------------------------

    def start(self) -> None:
        """Write the configuration, and start all of it. 0.5 s for eight nodes."""
        self._write()
        self._spawn(
            "munged", "-F", "--force", f"--socket={self.folder}/munge/munge.sock",
            f"--key-file={self.folder}/munge/key", f"--pid-file={self.folder}/munge/pid",
            f"--log-file={self.folder}/munged.log", f"--seed-file={self.folder}/munge/seed",
        )  # fmt: skip
        wait(lambda: (self.folder / "munge" / "munge.sock").exists())
        self.start_slurmctld("-c")
        for node in (*self.nodes, *self.cpu_nodes):
            self.start_slurmd(node)
        wait(lambda: set(self.states().values()) == {"idle"})

    def start_slurmctld(self, *options: str) -> None:
        self._spawn("slurmctld", "-D", *options, "-f", self.env["SLURM_CONF"])
        wait(lambda: "UP" in self.run("scontrol", "ping", check=False))

    def start_slurmd(self, node: str) -> None:
        self._spawn("slurmd", "-D", "-N", node, "-f", self.env["SLURM_CONF"], name=f"slurmd {node}")

    def kill(self, name: str) -> None:
        """Kill one process at once, as ``slurmctld`` or ``slurmd NODE``."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    @contextmanager
    def hung(self, name: str) -> Iterator[None]:
        """Have one process do nothing for a while, as ``slurmd NODE``."""
        self.processes[name].send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.processes[name].send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End all of it, jobs too."""
        self.run("scancel", "--state=RUNNING", "--signal=KILL", "--full", check=False)
        for name, process in reversed(list(self.processes.items())):
            process.send_signal(signal.SIGKILL if name.startswith("slurmd ") else signal.SIGTERM)
        for process in self.processes.values():
            try:
                process.wait(10.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._end_rest()

    def _end_rest(self) -> None:
        """End what jobs left: shepherds of steps outlive their slurmd."""
        mark = f"SLURM_CONF={self.env['SLURM_CONF']}".encode()
        for path in Path("/proc").glob("[0-9]*/environ"):
            # It may be over by now.
            with suppress(OSError):
                if mark in path.read_bytes().split(b"\0"):
                    os.kill(int(path.parent.name), signal.SIGKILL)

    def _write(self) -> None:
        for name in ("munge", "state", "dev", "run", "out", "shared", "times"):
            (self.folder / name).mkdir()
        self.folder.chmod(0o755)
        (self.folder / "munge").chmod(0o711)
        for name in ("out", "shared"):
            (self.folder / name).chmod(0o777)
        key = self.folder / "munge" / "key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o600)
        for gpu in range(self.gpus):
            os.mknod(self.folder / "dev" / f"gpu{gpu}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        host = socket.gethostname()
        lines = []
        for place, node in enumerate((*self.nodes, *self.cpu_nodes), 1):
            gpus = f" Gres=gpu:h100:{self.gpus}" if node in self.nodes else ""
            (self.folder / f"spool.{node}").mkdir()
            (self.folder / "maps" / node).mkdir(parents=True)
            lines.append(
                f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={self.port + place}"
                f" CPUs={_CPUS}{gpus} State=UNKNOWN"
            )
        cpu = f"PartitionName=cpu Nodes={','.join(self.cpu_nodes)} MaxTime=INFINITE State=UP"
        (self.folder / "slurm.conf").write_text(
            _CONF.format(
                name=self.name, host=host, folder=self.folder, port=self.port,
                nodes="\n".join(lines), with_gpus=",".join(self.nodes),
                more_partitions=cpu if self.cpu_nodes else "",
                slurmd_timeout_s=self.slurmd_timeout_s,
                plugins="" if self.is_plain else _PLUGINS.format(folder=self.folder),
            )
        )  # fmt: skip
        (self.folder / "gres.conf").write_text(
            f"NodeName={','.join(self.nodes)} Name=gpu Type=h100 Flags=nvidia_gpu_env"
            f" File={self.folder}/dev/gpu[0-{self.gpus - 1}]\n"
        )
        lua = (_DEPLOY / "job_submit.lua").read_text()
        lua = lua.replace('"/run/headroom-slurm"', f'"{self.run_dir}"')
        lua = lua.replace('WHEN_AWAY = "closed"', f'WHEN_AWAY = "{self.when_away}"')
        lua = lua.replace("EXEMPT = { }", "EXEMPT = { debug = true }")
        (self.folder / "job_submit.lua").write_text(lua)
        prolog = self.folder / "prolog"
        prolog.write_text(
            f"#!/bin/sh\nexport HEADROOM_SLURM_RUN_DIR={self.run_dir} HEADROOM_SLURM_EXEMPT=debug"
            f" HEADROOM_SLURM_WHEN_AWAY={self.when_away}\n"
            f"exec {_DEPLOY}/prolog_slurmctld.sh\n"
        )
        prolog.chmod(0o755)
        for name in ("node_prolog", "node_epilog"):
            # The nodes are one machine: each has a folder of its own.
            path = self.folder / name
            path.write_text(
                f"#!/bin/sh\nexport DCGM_HPC_JOB_MAPPING_DIR={self.folder}/maps/$SLURMD_NODENAME\n"
                f"echo {name} $SLURM_JOB_ID ${{SLURM_JOB_GPUS:--}} $(date +%s.%N)"
                f" >>{self.folder}/times/$SLURMD_NODENAME\n"
                f"exec {_DEPLOY}/{name}.sh\n"
            )
            path.chmod(0o755)

    def _spawn(self, program: str, *options: str, name: str = "") -> None:
        with (self.folder / "errors.log").open("ab") as errors:
            self.processes[name or program] = subprocess.Popen(
                [_which(program) or program, *options], env={**os.environ, **self.env},
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors,
                start_new_session=True,
            )  # fmt: skip

    # --- Work -------------------------------------------------------------------------------------

    def run(
        self, *argv: str, check: bool = True, user: str | None = None, timeout_s: float = 120.0
    ) -> str:
        """Return what a command of Slurm says; as ``user``, or as root."""
        done = subprocess.run(
            argv, env={**os.environ, **self.env}, user=user, cwd=self.folder / "out",
            capture_output=True, text=True, check=False, timeout=timeout_s,
        )  # fmt: skip
        if check and done.returncode:
            raise RuntimeError(f"{argv} ends with {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def as_user(self, *argv: str, check: bool = True, timeout_s: float = 120.0) -> str:
        """Return what a command says to somebody who is no administrator."""
        return self.run(*argv, check=check, user=_USER, timeout_s=timeout_s)

    def submit(self, *options: str, script: str = "exec sleep 600") -> str:
        """Submit a job as somebody; return its id."""
        said = self.as_user(
            "sbatch", "--parsable", "--gpus-per-node=h100:4", "--requeue", "--open-mode=append",
            f"--output={self.folder}/out/%j", *options, f"--wrap={script}",
        )  # fmt: skip
        return said.strip().split(";")[0]

    def job(self, ref: str) -> dict[str, Any]:
        """Return what slurmctld says of a job."""
        found: list[dict[str, Any]] = json.loads(self.run("squeue", "--json"))["jobs"]
        # 22.05 prints all of them, whichever one asks for.
        return next(row for row in found if str(row["job_id"]) == ref)

    def state(self, ref: str) -> str:
        return str(self.job(ref)["job_state"])

    def busy_gpus(self, node: str) -> set[int]:
        """Return the GPUs of a node that slurmd has given to jobs."""
        with suppress(OSError):
            names = [path.name for path in (self.folder / "maps" / node).iterdir()]
            return {int(name) for name in names if name.isdecimal()}
        return set()

    def states(self) -> dict[str, str]:
        """Return the state of each node."""
        said = self.run("sinfo", "-h", "-N", "-p", "gpu", "-o", "%N %t", check=False)
        return dict(line.split() for line in said.splitlines() if len(line.split()) == 2)


def wait(what: Callable[[], bool], within_s: float = PATIENCE_S, every_s: float = 0.05) -> None:
    """Return as soon as ``what`` holds. Raises TimeoutError."""
    end = time.monotonic() + within_s
    while not what():
        if time.monotonic() >= end:
            raise TimeoutError("it did not come about in time")
        time.sleep(every_s)


@contextmanager
def slurm_cluster(
    folder: Path,
    nodes: Sequence[str],
    *,
    when_away: str = "closed",
    slurmd_timeout_s: int = 30,
    gpus: int = 4,
    is_plain: bool = False,
    name: str = "test",
    cpu_nodes: Sequence[str] = (),
) -> Iterator[SlurmCluster]:
    """Have a cluster for as long as the context lasts; several may be there at once."""
    ports = _free_ports(len(nodes) + len(cpu_nodes) + 1)
    made = SlurmCluster(
        folder, nodes, ports, when_away, slurmd_timeout_s, gpus, is_plain, name, cpu_nodes
    )
    try:
        made.start()
        yield made
    finally:
        made.stop()


def _free_ports(count: int) -> int:
    """Return the first of so many ports in a row that nobody listens on."""
    for first in range(20_000 + os.getpid() % 10_000, 60_000, count):
        if all(_is_free(port) for port in range(first, first + count)):
            return first
    raise RuntimeError("there are no free ports")


def _is_free(port: int) -> bool:
    with socket.socket() as found:
        try:
            found.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
