"""The fleet that a recording is played into: its inventory, as the YAML that the server applies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

from headroom.replay.recording import Recording

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


def make_fleet(recording: Recording) -> ReplayFleet:
    """Return a site for ``recording``, with one power meter on each node."""
    site = f"replay-{recording.title}"
    width = len(str(len(recording.nodes)))
    names = tuple(f"{site}-n{i:0{width}}" for i in range(1, len(recording.nodes) + 1))
    meters = tuple(f"{name}/power" for name in names)
    document = {
        "hardware_models": _hardware_models(recording),
        "sites": [_site(recording, site, names)],
        "meters": [
            {"name": meter, "kind": "power", "node": node}
            for meter, node in zip(meters, names, strict=True)
        ],
    }
    return ReplayFleet(site, yaml.safe_dump(document, sort_keys=False), names, meters)


def _hardware_models(recording: Recording) -> list[dict[str, Any]]:
    hardware = recording.hardware
    gpu = {
        "name": hardware.gpu_model,
        "kind": "gpu",
        "vendor": "NVIDIA",
        "rated_w": hardware.gpu_rated_w,
        "idle_w": hardware.gpu_idle_w,
        "slowdown_c": 87,
        "slowdown_mem_c": 95,
        "shutdown_c": 92,
        "sm_max_mhz": 1980,
        "mem_bytes": hardware.gpu_mem_bytes,
    }
    host = {
        "name": hardware.host_model,
        "kind": "node",
        "rated_w": hardware.host_rated_w,
        "idle_w": hardware.host_idle_w,
    }
    return [gpu, host]


def _site(recording: Recording, site: str, names: tuple[str, ...]) -> dict[str, Any]:
    hardware = recording.hardware
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
            _rack(recording, number, len(shelves), nodes) for number, nodes in enumerate(shelves)
        ],
    }


def _rack(recording: Recording, number: int, racks: int, nodes: tuple[str, ...]) -> dict[str, Any]:
    hardware = recording.hardware
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
                "labels": {"recording": recording.title},
                "gpus": {"model": hardware.gpu_model, "count": hardware.gpus_per_node},
            }
            for place, name in enumerate(nodes)
        ],
    }
