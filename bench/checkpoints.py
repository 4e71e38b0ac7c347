"""Checkpoints of a real optimizer: what a loop waits for, what goes over a link, and restoring.

A small language model is trained on this repository's own documents with Adam, on the CPU; it
writes its state with ``torch.save`` and stages it, while ``headroom checkpoints keep`` works in a
process beside it. `cp` and `tar | zstd` do the same with the same files in the same run. Before
each time that something is read, the system's cache of those files is dropped; what is written is
on the disk when the clock stops.
"""

from __future__ import annotations

# PyTorch is of examples/ddp alone, and imported where it is needed.
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bench import report
from headroom.checkpoints import About, Store, restore, save, ship, stage
from headroom.places import Directory
from physics import reliability

RUN = "bench"
CHECKPOINTS, STEPS_BETWEEN = 5, 40
#: Time between failures of the job: of 16,384 GPUs in the training of Llama 3, 54 days with 419.
MTBF_S = 54 * 86_400 / 419
REPEATS = 3
_WAIT_S = 120.0


def run() -> None:
    try:
        import torch
    except ModuleNotFoundError:
        sys.exit("no PyTorch: sh examples/ddp/ensure-torch.sh python3")
    torch.manual_seed(1)
    # A loop that feeds a GPU keeps one core busy: the keeper has the others, as on a node.
    torch.set_num_threads(max(1, (os.cpu_count() or 2) - 1))
    with tempfile.TemporaryDirectory(prefix="headroom-bench-", dir=_here()) as name:
        folder = Path(name)
        figures = {**_trained(folder), **_sent(folder), **_restored(folder)}
    report.show("checkpoints", figures, _NOTES)
    report.keep("checkpoints", figures)


_NOTES = {
    "stall_share": "of the time of steps at the advised interval: blocked and slowed",
    "blocked_s": "torch.save to the local disk, and staging",
    "slowed_s": "by how much steps beside the keeper took longer, for each checkpoint",
    "advised_interval_s": "for the MTBF of 16,384 GPUs",
    "wire_share": "of five checkpoints, what went over the link",
    "read_back_share": "of the same, what came back, to be verified",
    "tar_zstd_share": "of the same, by tar | zstd -1",
    "unchanged_wire_share": "of a checkpoint with nothing new, both ways",
    "restore_share_of_disk": "of the speed of cp, cold, and on the disk in the end",
}


class _Counted(Directory):
    """A folder at the other end of a link on which bytes are counted, by direction."""

    there_bytes = back_bytes = 0

    def put(self, path: str, data: bytes) -> None:
        self.there_bytes += len(data)
        super().put(path, data)

    def get(self, path: str) -> bytes:
        data = super().get(path)
        self.back_bytes += len(data)
        return data


def _trained(folder: Path) -> dict[str, Any]:
    """Train with a keeper beside it, and return what that cost the loop."""
    training = _Training()
    store = Store.at(folder / "near")
    alone = [training.step() for _ in range(STEPS_BETWEEN)][STEPS_BETWEEN // 4 :]
    usual_s = statistics.median(alone)
    blocked, slowed = [], []
    with _keeper(folder / "near"):
        for number in range(1, CHECKPOINTS + 1):
            began = time.perf_counter()
            training.save(folder / f"written-{number}")
            # The files stay for those that are compared with.
            stage_from = folder / f"staged-{number}"
            blocked_s = time.perf_counter() - began
            shutil.copytree(folder / f"written-{number}", stage_from)
            began = time.perf_counter()
            stage(stage_from, store, About(run=RUN, step=number), move=True)
            blocked.append(blocked_s + time.perf_counter() - began)
            times: list[float] = []
            end = time.monotonic() + _WAIT_S
            while len(store.names(RUN)) < number or len(times) < STEPS_BETWEEN:
                times.append(training.step())
                assert time.monotonic() < end, "the keeper does not keep up"
            slowed.append(sum(times) - usual_s * len(times))
    blocked_s = statistics.median(blocked)
    slowed_s = max(0.0, statistics.median(slowed))
    interval_s = float(reliability.optimal_interval_s(checkpoint_s=blocked_s, system_mtbf_s=MTBF_S))
    return {
        "stall_share": (blocked_s + slowed_s) / interval_s,
        "blocked_s": blocked_s,
        "slowed_s": slowed_s,
        "advised_interval_s": interval_s,
        "step_s": usual_s,
        "parameters": training.parameters,
        "checkpoint_mb": _bytes_of(folder / "written-1") / 1e6,
    }


def _sent(folder: Path) -> dict[str, Any]:
    """Send all checkpoints to another store, then one with nothing new."""
    near, link = Store.at(folder / "near"), _Counted(folder / "far")
    far = Store(link)
    found = near.readable(RUN)
    raw = sum(each.manifest.bytes for each in found)
    for each in found:
        ship(each, near, far)
    there_bytes, back_bytes = link.there_bytes, link.back_bytes
    began = time.perf_counter()
    again = save(folder / f"written-{CHECKPOINTS}", near, About(run=RUN, step=CHECKPOINTS + 1))
    unchanged_s = time.perf_counter() - began
    ship(again, near, far)
    unchanged = link.there_bytes + link.back_bytes - there_bytes - back_bytes
    tar = sum(_tarred(folder, number)[0] for number in range(1, CHECKPOINTS + 1))
    return {
        "wire_share": there_bytes / raw,
        "read_back_share": back_bytes / raw,
        "tar_zstd_share": tar / raw,
        "unchanged_wire_share": unchanged / again.manifest.bytes,
        "unchanged_save_s": unchanged_s,
    }


def _restored(folder: Path) -> dict[str, Any]:
    """Save and restore, beside cp and tar | zstd, one after the other several times."""
    written = folder / f"written-{CHECKPOINTS}"
    size = _bytes_of(written)
    fresh = folder / "fresh"
    times: dict[str, list[float]] = {}

    def timed(name: str, do: Callable[[], Any], source: Path, target: Path) -> None:
        if target.is_dir():
            shutil.rmtree(target)
        _drop(source)
        began = time.perf_counter()
        do()
        _on_disk(target)
        times.setdefault(name, []).append(time.perf_counter() - began)

    archive = _tarred(folder, CHECKPOINTS)[1]
    back = folder / "back"
    for _ in range(REPEATS):
        timed(
            "save", lambda: save(written, Store.at(fresh), About(run=RUN, step=1)), written, fresh
        )
        timed("restore", lambda: restore(Store.at(fresh), back, RUN), fresh, back)
        timed("cp", lambda: _sh(f"cp -r {written} {back}"), written, back)
        timed(
            "untar",
            lambda: _sh(f"mkdir {back} && zstd -qdc {archive} | tar x -C {back}"),
            archive,
            back,
        )
    speed = {name: size / 1e6 / statistics.median(each) for name, each in times.items()}
    return {
        "restore_share_of_disk": speed["restore"] / speed["cp"],
        "restore_mb_per_s": speed["restore"],
        "cp_mb_per_s": speed["cp"],
        "untar_mb_per_s": speed["untar"],
        "save_mb_per_s": speed["save"],
    }


class _Training:
    """A language model of bytes, of some millions of parameters, and Adam."""

    _WIDTH, _LAYERS, _LENGTH, _BATCH = 384, 6, 64, 4

    def __init__(self) -> None:
        import torch

        self._torch = torch
        layer = torch.nn.TransformerEncoderLayer(
            self._WIDTH, 6, 4 * self._WIDTH, dropout=0.0, batch_first=True
        )
        self._model = torch.nn.Sequential(
            torch.nn.Embedding(256, self._WIDTH),
            torch.nn.TransformerEncoder(layer, self._LAYERS, enable_nested_tensor=False),
            torch.nn.Linear(self._WIDTH, 256),
        )
        self._adam = torch.optim.AdamW(self._model.parameters(), lr=3e-4)
        docs = sorted(Path(__file__).resolve().parents[1].glob("docs/**/*.md"))
        self._text = np.frombuffer(b"".join(path.read_bytes() for path in docs), np.uint8)
        self._draw = np.random.default_rng(1)
        self.parameters = sum(each.numel() for each in self._model.parameters())

    def step(self) -> float:
        """Train on one batch, and return for how long that took, s."""
        began = time.perf_counter()
        starts = self._draw.integers(0, len(self._text) - self._LENGTH - 1, self._BATCH)
        rows = np.stack([self._text[at : at + self._LENGTH + 1] for at in starts])
        batch = self._torch.from_numpy(rows.astype(np.int64))
        said = self._model(batch[:, :-1])
        loss = self._torch.nn.functional.cross_entropy(
            said.reshape(-1, 256), batch[:, 1:].reshape(-1)
        )
        self._adam.zero_grad()
        loss.backward()
        self._adam.step()
        return time.perf_counter() - began

    def save(self, folder: Path) -> None:
        """Write the whole state to ``folder``, as loops do."""
        folder.mkdir()
        state = {
            "model": self._model.state_dict(),
            "optimizer": self._adam.state_dict(),
            "rng": self._torch.get_rng_state(),
        }
        self._torch.save(state, folder / "checkpoint.pt")


@contextmanager
def _keeper(store: Path) -> Iterator[None]:
    child = subprocess.Popen(
        [sys.executable, "-m", "headroom", "checkpoints", "keep", str(store), "--newest", "9"],
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        child.send_signal(signal.SIGTERM)
        child.wait(_WAIT_S)


def _tarred(folder: Path, number: int) -> tuple[int, Path]:
    """Pack one checkpoint by ``tar | zstd``; return the size and the archive."""
    archive = folder / f"{number}.tar.zst"
    if not archive.exists():
        _sh(f"tar c -C {folder / f'written-{number}'} . | zstd -q -1 -T0 -o {archive}")
    return archive.stat().st_size, archive


def _sh(command: str) -> None:
    subprocess.run(["bash", "-o", "pipefail", "-c", command], check=True)


def _files_of(path: Path) -> list[Path]:
    return [each for each in path.rglob("*") if each.is_file()] if path.is_dir() else [path]


def _bytes_of(path: Path) -> int:
    return sum(each.stat().st_size for each in _files_of(path))


def _drop(path: Path) -> None:
    """Have the next reader of the files read from the disk."""
    _on_disk(path)
    for each in _files_of(path):
        descriptor = os.open(each, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def _on_disk(path: Path) -> None:
    for each in _files_of(path):
        descriptor = os.open(each, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def _here() -> str:
    """Return a folder on a disk: the usual one for temporary files may be memory."""
    return os.environ.get("TMPDIR", "/var/tmp")
