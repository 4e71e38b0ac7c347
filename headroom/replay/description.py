"""Descriptions of recordings: the machines that were recorded, and what a file calls things.

A description is a small YAML file, ``recording.yaml`` beside the recording or the one that the
command names. Published recordings that say of themselves which machines they are of need none.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
import yaml
from msgspec import Meta

from headroom.replay.recording import Hardware, RecordingError

__all__ = ["EXAMPLE", "FILE", "MACHINES", "Columns", "Description", "describe"]

#: The name of a description beside a recording.
FILE = "recording.yaml"
EXAMPLE = """\
machine: h200            # a known one, or else:
hardware: {gpu_model: A100-SXM4-80GB, gpu_rated_w: 400, gpus_per_node: 8, node_rated_w: 6500}
columns:                 # where the file has a form of its own
  time: timestamp        # ISO 8601, or with time_unit: s, ms or us
  power: power.draw [W]  # with power_unit: W, mW or kW
  node: hostname         # may be left out, like run and gpu
#  step: step            # of a log of training steps in place of power; with loss, step_time_s and
#                        # samples_per_s where it has them, and pattern where it is no CSV
"""

_SMC_H100 = Hardware(
    gpu_model="H100-SXM5-80GB",
    gpu_rated_w=700,
    gpu_idle_w=70,
    gpu_mem_bytes=85_520_809_984,
    host_model="Immersed-HGX-H100-host",
    # The highest node reading of the 64-node run is 7.55 kW; no fans are left to feed.
    host_rated_w=1_900,
    host_idle_w=900,
    gpus_per_node=8,
    nodes_per_rack=8,
    node_budget_w=7_750,
    cooling_kind="immersion",
    supply_c=35,
)
_HGX_H200 = Hardware(
    gpu_model="H200-SXM-141GB",
    gpu_rated_w=700,
    gpu_idle_w=75,
    gpu_mem_bytes=150_754_820_096,
    host_model="HGX-H200-host",
    host_rated_w=2_400,
    host_idle_w=1_100,
    gpus_per_node=8,
    nodes_per_rack=1,
    node_budget_w=8_000,
    cooling_kind="air",
    supply_c=24,
)
#: The machines of the published recordings, by the names that the command knows.
MACHINES = {"h100-immersed": _SMC_H100, "h200": _HGX_H200}
#: A host idles at about this share of what it is rated for.
_HOST_IDLE_SHARE = 0.45
_GPU_IDLE_SHARE = 0.1
#: Of what a machine is rated for, on top for its rack's budget.
_BUDGET_SHARE = 1.05

Watts = Annotated[float, Meta(gt=0, le=1e6)]
Name = Annotated[str, Meta(min_length=1, max_length=100)]


class Machine(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The hardware of one node, as a person writes it. ``node_rated_w`` is with its GPUs."""

    gpu_model: Name
    gpu_rated_w: Watts
    node_rated_w: Watts
    gpus_per_node: Annotated[int, Meta(ge=1, le=256)] = 8
    gpu_mem_bytes: Annotated[int, Meta(ge=0, le=2**50)] = 0
    vendor: Annotated[str, Meta(max_length=100)] = ""
    slowdown_c: Annotated[float, Meta(gt=0, le=300)] | None = None
    sm_max_mhz: Annotated[float, Meta(gt=0, le=1e5)] | None = None
    cooling_kind: Literal["air", "rear-door", "direct-to-chip", "immersion"] = "air"

    def as_hardware(self) -> Hardware:
        """Return it with what follows from the ratings. Raises :class:`RecordingError`."""
        host_w = self.node_rated_w - self.gpus_per_node * self.gpu_rated_w
        if host_w <= 0:
            raise RecordingError(
                f"hardware: node_rated_w {self.node_rated_w:g} is no more than that of its "
                f"{self.gpus_per_node} GPUs of {self.gpu_rated_w:g} W"
            )
        return Hardware(
            gpu_model=self.gpu_model,
            gpu_rated_w=self.gpu_rated_w,
            gpu_idle_w=_GPU_IDLE_SHARE * self.gpu_rated_w,
            gpu_mem_bytes=self.gpu_mem_bytes,
            host_model=f"{self.gpu_model}-host",
            host_rated_w=host_w,
            host_idle_w=_HOST_IDLE_SHARE * host_w,
            gpus_per_node=self.gpus_per_node,
            nodes_per_rack=1,
            node_budget_w=_BUDGET_SHARE * self.node_rated_w,
            cooling_kind=self.cooling_kind,
            supply_c=24,
            vendor=self.vendor,
            slowdown_c=self.slowdown_c,
            slowdown_mem_c=None,
            shutdown_c=None,
            sm_max_mhz=self.sm_max_mhz,
        )


class Columns(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What a file calls its columns: those of power, or those of a log of training steps.

    Of several GPUs of a node the power is summed. ``pattern`` is a regular expression for logs that
    are no CSV: its named groups are the columns.
    """

    time: Name
    power: str = ""
    time_unit: Literal["iso", "s", "ms", "us"] = "iso"
    power_unit: Literal["W", "mW", "kW"] = "W"
    node: str = ""
    run: str = ""
    gpu: str = ""
    step: str = ""
    loss: str = ""
    step_time_s: str = ""
    samples_per_s: str = ""
    pattern: Annotated[str, Meta(max_length=1000)] = ""

    def __post_init__(self) -> None:
        if bool(self.power) == bool(self.step):
            raise ValueError("give power, or step where the file is a log of training steps")
        others = ("node", "gpu") if self.step else tuple(self.of_steps)
        if wrong := [name for name in others if getattr(self, name)]:
            beside = "step" if self.step else "power"
            raise ValueError(f"{', '.join(wrong)} cannot stand beside {beside}")

    @property
    def of_steps(self) -> dict[str, str]:
        """What a log tells of each step besides its number: the column, by our name."""
        names = {name: getattr(self, name) for name in ("loss", "step_time_s", "samples_per_s")}
        return {name: column for name, column in names.items() if column}


class Description(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What a recording says of itself."""

    machine: str = ""
    hardware: Machine | None = None
    columns: Columns | None = None

    def known_hardware(self) -> Hardware | None:
        """Return the machines' hardware; None where it is not said."""
        if self.hardware is not None:
            return self.hardware.as_hardware()
        if not self.machine:
            return None
        if self.machine not in MACHINES:
            known = ", ".join(MACHINES)
            raise RecordingError(
                f"machine: {self.machine!r} is not known; give one of {known}, or its hardware"
            )
        return MACHINES[self.machine]


def describe(file: Path, given: Path | None, machine: str) -> Description:
    """Return the description of ``file``. Raises :class:`RecordingError`.

    The command comes first (``given``, a description's path, and the name of a ``machine``), then
    the description beside the file, then what the publishers of the recording say.
    """
    path = given or file.with_name(FILE)
    found = _read(path) if given is not None or path.is_file() else Description()
    if machine:
        return msgspec.structs.replace(found, machine=machine, hardware=None)
    if found.machine or found.hardware:
        return found
    return msgspec.structs.replace(found, machine=_published(file.parent))


def _read(path: Path) -> Description:
    try:
        return msgspec.convert(yaml.safe_load(path.read_text()) or {}, Description)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, msgspec.ValidationError) as exc:
        raise RecordingError(f"the description {path} cannot be read: {exc}\n{EXAMPLE}") from exc


def _published(folder: Path) -> str:
    """Return the known machine that the folder's own words name, "" where that is none or two."""
    texts = [*sorted(folder.glob("system*.json")), folder / "README.md"]
    said = "".join(text.read_text(errors="replace")[:100_000] for text in texts if text.is_file())
    named = [name for name, known in MACHINES.items() if known.gpu_model in said]
    return named[0] if len(named) == 1 else ""
