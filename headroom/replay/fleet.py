"""The fleet that a recording is played into: its inventory, as the YAML that the server applies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

from headroom.contracts import RECORDING_OVER
from headroom.replay.description import EXAMPLE, FILE, MACHINES
from headroom.replay.recording import Hardware, Recording, RecordingError

__all__ = ["ReplayFleet", "make_fleet"]

_ROWS = "AB"
#: What may be drawn of a power domain without end.
_DERATING = 0.8


@dataclass(frozen=True)
class ReplayFleet:
    """The inventory, and the names that the recording's nodes have in it."""

    site: str
    inventory: str
    #: One for each node of the recording, in its order.
    node_names: tuple[str, ...]
    meter_names: tuple[str, ...]


def make_fleet(recording: Recording, *, is_over: bool = False) -> ReplayFleet:
    """Return a site for ``recording``, with one power meter on each node.

    ``is_over``: it has been played, and its machines are there no more.

    Raises :class:`RecordingError` where nothing says which machines were recorded.
    """
    site = f"replay-{recording.title}"
    if not recording.nodes:
        # The job of a step log runs on machines of which nothing is known.
        return ReplayFleet(site, yaml.safe_dump({"sites": [{"name": site}]}), (), ())
    if recording.hardware is None:
        raise RecordingError(
            "nothing says which machines were recorded: give --machine "
            f"({', '.join(MACHINES)}), or describe them in {FILE} beside the recording:\n{EXAMPLE}"
        )
    hardware = recording.hardware
    width = len(str(len(recording.nodes)))
    names = tuple(f"{site}-n{i:0{width}}" for i in range(1, len(recording.nodes) + 1))
    meters = tuple(f"{name}/power" for name in names)
    labels = {"recording": recording.title} | ({RECORDING_OVER: "yes"} if is_over else {})
    document = {
        "hardware_models": _hardware_models(hardware),
        "sites": [_site(hardware, site, names, labels)],
        "meters": [
            {"name": meter, "kind": "power", "node": node}
            for meter, node in zip(meters, names, strict=True)
        ],
    }
    return ReplayFleet(site, yaml.safe_dump(document, sort_keys=False), names, meters)


def _hardware_models(hardware: Hardware) -> list[dict[str, Any]]:
    gpu = {
        "name": hardware.gpu_model,
        "kind": "gpu",
        "vendor": hardware.vendor,
        "rated_w": hardware.gpu_rated_w,
        "idle_w": hardware.gpu_idle_w,
        "slowdown_c": hardware.slowdown_c,
        "slowdown_mem_c": hardware.slowdown_mem_c,
        "shutdown_c": hardware.shutdown_c,
        "sm_max_mhz": hardware.sm_max_mhz,
        "mem_bytes": hardware.gpu_mem_bytes or None,
    }
    host = {
        "name": hardware.host_model,
        "kind": "node",
        "rated_w": hardware.host_rated_w,
        "idle_w": hardware.host_idle_w,
    }
    known = {name: value for name, value in gpu.items() if value not in (None, "")}
    return [known, host]


def _site(
    hardware: Hardware, site: str, names: tuple[str, ...], labels: dict[str, str]
) -> dict[str, Any]:
    size = hardware.nodes_per_rack
    shelves = [names[i : i + size] for i in range(0, len(names), size)]
    budget_w = hardware.node_budget_w * len(names)
    # Either feed of the pair can carry all the racks, since the pair is redundant.
    capacity_w = budget_w / _DERATING
    feed = {"kind": "feed", "parent": "utility", "capacity_w": capacity_w, "derating": _DERATING}
    return {
        "name": site,
        "budget_w": budget_w,
        "time_zone": "UTC",
        "power_domains": [
            {
                "name": "utility",
                "kind": "utility",
                "capacity_w": capacity_w,
                "derating": _DERATING,
            },
            {"name": "feed-a", **feed, "pair": "feed", "side": "A"},
            {"name": "feed-b", **feed, "pair": "feed", "side": "B"},
        ],
        "cooling_zones": [
            {
                "name": "hall",
                "kind": hardware.cooling_kind,
                "capacity_w": budget_w * 1.1,
                "supply_c": hardware.supply_c,
            }
        ],
        "racks": [
            _rack(labels, hardware, number, len(shelves), nodes)
            for number, nodes in enumerate(shelves)
        ],
    }


def _rack(
    labels: dict[str, str], hardware: Hardware, number: int, racks: int, nodes: tuple[str, ...]
) -> dict[str, Any]:
    per_row = -(-racks // len(_ROWS)) if racks > 1 else 1
    height_u = 6
    return {
        "name": f"T{number + 1:02}",
        "row": _ROWS[number // per_row],
        "position": number % per_row,
        "height_u": max(24, height_u * hardware.nodes_per_rack),
        "budget_w": hardware.node_budget_w * len(nodes),
        "feed_a": "feed-a",
        "feed_b": "feed-b",
        "cooling_zone": "hall",
        "nodes": [
            {
                "name": name,
                "model": hardware.host_model,
                "position_u": 1 + height_u * place,
                "height_u": height_u,
                # Its own: YAML would make one that is shared a reference.
                "labels": dict(labels),
                "gpus": {"model": hardware.gpu_model, "count": hardware.gpus_per_node},
            }
            for place, name in enumerate(nodes)
        ],
    }
