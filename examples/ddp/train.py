"""Trains a small network with two processes that exchange gradients over gloo. On CPUs, in seconds.

It does what a job has to do to come through limits unharmed: the same seed gives the same losses to
the last bit, checkpoints are whole or absent and have their digest beside them, and what is started
again resumes where the last one was written. As a job of Headroom it reports its steps and obeys
directives, by five lines with ``headroom.training``. Run it by itself, or under the matrix:

    headroom matrix run --standard -- python examples/ddp/train.py
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import multiprocessing
import os
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass, field
from multiprocessing import connection
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from headroom import training
from headroom.training.restarting import LEFT

PROCESSES = 2
_SEED = 7
_FEATURES, _HIDDEN, _CLASSES = 64, 256, 10
_BATCH = 64
_ROWS = 4_096
_DIGEST = ".sha256"
_TRIES = 8
_TIMEOUT_S = 5.0


@dataclass
class Storage:
    """Artifact storage over HTTP. Requests that fail are sent again, and counted."""

    url: str
    retries: int = 0
    waiting: dict[str, bytes] = field(default_factory=dict)

    def put(self, name: str, body: bytes) -> None:
        """Store a file; where that fails now, with the next one."""
        if self.url:
            self.waiting[name] = body
            self.flush(tries=1)

    def flush(self, tries: int = _TRIES) -> bool:
        """Send the files that wait. Return whether none waits any more."""
        for name, body in list(self.waiting.items()):
            if self._sent(name, body, tries):
                del self.waiting[name]
        return not self.waiting

    def _sent(self, name: str, body: bytes, tries: int) -> bool:
        url, digest = f"{self.url}/{name}", digest_of(body)
        for number in range(tries):
            # The URL comes from whoever starts this.
            request = urllib.request.Request(url, data=body, method="PUT")  # noqa: S310
            try:
                with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310
                    if answer.headers["ETag"].strip('"') == digest:
                        return True
            except (urllib.error.URLError, OSError):
                self.retries += 1
                time.sleep(min(2.0, 0.1 * 2**number))
        return False


class Trainer:
    """One of the processes: its share of each batch, and with rank 0 logs and checkpoints."""

    def __init__(self, rank: int, options: argparse.Namespace) -> None:
        self.rank = rank
        self.options = options
        torch.manual_seed(_SEED)
        # Smooth: at a kink, what rounding does to a batch in parts would become another gradient.
        self.model = nn.Sequential(
            nn.Linear(_FEATURES, _HIDDEN),
            nn.GELU(),
            nn.Linear(_HIDDEN, _HIDDEN),
            nn.GELU(),
            nn.Linear(_HIDDEN, _CLASSES),
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.inputs, self.targets = self._data()
        self.folder = Path(options.checkpoints)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.storage = Storage(options.storage)
        self.step = 0

    def _data(self) -> tuple[Tensor, Tensor]:
        """Return points whose class is how a random network of the same kind sees them."""
        generator = torch.Generator().manual_seed(_SEED)
        inputs = torch.randn(_ROWS, _FEATURES, generator=generator)
        teacher = torch.randn(_FEATURES, _CLASSES, generator=generator)
        return inputs, (inputs @ teacher).argmax(dim=1)

    def batch(self) -> tuple[Tensor, Tensor]:
        """Return this process's rows of the current step: a function of seed, step and rank."""
        generator = torch.Generator().manual_seed(_SEED * 1_000_003 + self.step)
        rows = torch.randint(_ROWS, (PROCESSES, _BATCH), generator=generator)[self.rank]
        return self.inputs[rows], self.targets[rows]

    def train(self) -> None:
        """Make the steps that are left."""
        self.resume()
        batch = training.Batch(rows=_BATCH)
        with training.session(save=self.save, step=self.step, batch=batch) as run:
            while self.step < self.options.steps:
                began_s = time.monotonic()
                loss, sync_s = self.make_step(run)
                time.sleep(max(0.0, began_s + self.options.step_s - time.monotonic()))
                self.step += 1
                self.log(loss, sync_s, len(run.parts))
                run.step(loss=loss, samples=_BATCH)
                if self.step % self.options.checkpoint_every == 0:
                    run.save()
            run.save()
        if not self.storage.flush():
            sys.exit("checkpoints wait that the storage does not take")

    def make_step(self, run: training.Session) -> tuple[float, float]:
        """Make one step. Return the loss over all processes, and how long the exchange took, s."""
        inputs, targets = self.batch()
        for _ in range(self.options.work):
            self.optimizer.zero_grad()
            loss = torch.zeros(1)
            for part in run.parts:
                outputs = self.model(inputs[part.rows])
                own = nn.functional.cross_entropy(outputs, targets[part.rows]) * part.weight
                own.backward()
                loss += own.detach()
        grads = torch.cat([each.grad.flatten() for each in self.model.parameters()])
        both = torch.cat([grads, loss])
        began_s = time.perf_counter()
        dist.all_reduce(both)
        sync_s = time.perf_counter() - began_s
        run.spent(training.Section.GRADIENT_SYNC, sync_s)
        both /= PROCESSES
        self._spread(both[:-1])
        self.optimizer.step()
        return float(both[-1]), sync_s

    def _spread(self, grads: Tensor) -> None:
        begin = 0
        for each in self.model.parameters():
            each.grad.copy_(grads[begin : begin + each.numel()].view_as(each))
            begin += each.numel()

    def log(self, loss: float, sync_s: float, parts: int) -> None:
        """Report a step in the form of docs/reference/matrix.md."""
        if self.rank == 0:
            facts = {
                "step": self.step,
                "loss": loss,
                "sync_s": sync_s,
                "parts": parts,
                "retries": self.storage.retries,
            }
            with Path(self.options.step_log).open("a") as file:
                file.write(json.dumps(facts) + "\n")

    def state(self) -> dict[str, Any]:
        """Return all that the next step depends on."""
        return {
            "step": self.step,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }

    def save(self, step: int) -> None:
        """Write a checkpoint that is whole or absent, and its digest; send both to the storage."""
        if self.rank != 0:
            return
        buffer = io.BytesIO()
        torch.save(self.state(), buffer)
        body = buffer.getvalue()
        name = f"step-{step:06d}.pt"
        # The digest comes last: a checkpoint without one is not whole, and nobody resumes from it.
        for each, content in ((name, body), (f"{name}{_DIGEST}", digest_of(body).encode())):
            self.write(each, content)
            self.storage.put(each, content)

    def write(self, name: str, body: bytes) -> None:
        """Write a file so that it is there whole, also after the machine has lost its power."""
        draft = self.folder / f"{name}.tmp"
        with draft.open("wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(self.folder / name)

    def resume(self) -> None:
        """Take up the newest whole checkpoint, if there is one."""
        for path in sorted(self.folder.glob("step-*.pt"), reverse=True):
            digest = path.with_name(path.name + _DIGEST)
            body = path.read_bytes()
            if digest.exists() and digest.read_text() == digest_of(body):
                self.load(torch.load(io.BytesIO(body), weights_only=True))
                return

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]


def digest_of(body: bytes) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    return hashlib.sha256(body).hexdigest()


def run(
    rank: int,
    options: argparse.Namespace,
    trainer: type[Trainer],
    meeting: socket.socket | None = None,
) -> None:
    """Be one of the processes. They meet at ``meeting``; without it, where the environment says."""
    # One thread each: the order of sums is the same on every machine.
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    store = meeting and store_at(meeting, is_master=rank == 0)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=PROCESSES)
    trainer(rank, options).train()
    dist.destroy_process_group()


def start_all(options: argparse.Namespace, trainer: type[Trainer]) -> int:
    """Start the processes and wait for them.

    Return 0 if all ended well, 143 if they were told to leave and have saved, 1 if one failed.
    """
    if "HEADROOM_NODES" in os.environ:
        # The name of its node may be known to Headroom alone; here all processes are on it.
        os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    # Bound here: a port that was only looked up would be somebody else's by the time they meet.
    meeting = None if "MASTER_PORT" in os.environ else socket.create_server(("127.0.0.1", 0))
    # Forked, so that PyTorch is loaded once.
    context = multiprocessing.get_context("fork")
    processes = [
        context.Process(target=run, args=(rank, options, trainer, meeting))
        for rank in range(PROCESSES)
    ]
    for each in processes:
        each.start()
    # They save, and end by themselves.
    signal.signal(signal.SIGTERM, lambda *_: end_all(processes))
    running = processes
    while running:
        connection.wait([each.sentinel for each in running])
        running = [each for each in processes if each.is_alive()]
        if any(has_failed(each) for each in processes):
            # The others would wait for it, some of them for half an hour.
            kill_all(running)
    if any(has_failed(each) for each in processes):
        return 1
    return max(each.exitcode or 0 for each in processes)


def has_failed(process: ForkProcess) -> bool:
    """Say whether a process has ended badly. One that leaves as it was told to has not.

    Another one may still write the checkpoint that all of them leave with.
    """
    return process.exitcode not in (None, 0, LEFT)


def end_all(processes: list[ForkProcess]) -> None:
    """Ask the processes to end."""
    for each in processes:
        each.terminate()


def kill_all(processes: Iterable[ForkProcess]) -> None:
    """End processes at once."""
    for each in processes:
        each.kill()


def store_at(meeting: socket.socket, is_master: bool) -> dist.TCPStore:
    """Return the store by which the processes find each other, behind a socket that listens."""
    host, port = meeting.getsockname()
    listens = meeting.detach() if is_master else None
    return dist.TCPStore(host, port, PROCESSES, is_master, master_listen_fd=listens)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the options; those of the matrix come from its environment."""
    get = os.environ.get
    parser = argparse.ArgumentParser(description=__doc__, add_help=True)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--work", type=int, default=4, help="backward passes for each step")
    parser.add_argument("--step-s", type=float, default=0.0, help="how long a step takes at least")
    parser.add_argument("--checkpoint-every", type=int, default=25)
    parser.add_argument("--checkpoints", default=get("HEADROOM_CHECKPOINT_DIR", "checkpoints"))
    parser.add_argument("--step-log", default=get("HEADROOM_STEP_LOG", "/dev/stdout"))
    parser.add_argument("--storage", default=get("HEADROOM_STORAGE_URL", ""))
    return parser.parse_args(arguments)


def main(trainer: type[Trainer] = Trainer) -> int:
    """Train. With RANK in the environment (torchrun sets it) be that process alone."""
    options = parse()
    if "RANK" in os.environ:
        run(int(os.environ["RANK"]), options, trainer)
        return 0
    return start_all(options, trainer)


if __name__ == "__main__":
    sys.exit(main())
