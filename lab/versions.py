"""The versions of what the nodes of the twin run: alike by model, but where the fleet has drifted.

One rack was left out when the others came to their driver, and one node came back from repair with
NICs whose firmware is older. What jobs tell of themselves, no node of the twin does.
"""

from __future__ import annotations

from lab.fleet import Fleet

__all__ = ["versions_of"]

_DRIVER, _FORMER_DRIVER = "570.133.20", "550.163.01"
_FABRIC_DRIVER = "24.10-2.1.8"
_RELEASE, _FORMER_RELEASE = "43.2566", "39.1002"
#: By GPU model: VBIOS, and the number with which the firmware of its machines' NICs begins.
_FIRMWARE = {
    "H100-SXM5-80GB": ("96.00.A5.00.01", 28),
    "H200-SXM5-141GB": ("96.00.BC.00.02", 28),
    "A100-SXM4-80GB": ("92.00.9E.00.03", 20),
    "L40S-48GB": ("95.02.66.00.02", 22),
}


def versions_of(fleet: Fleet) -> dict[str, dict[str, str]]:
    """Return what each node reports, by its name and the field of the contract."""
    left_out, repaired = len(fleet.racks) // 2, len(fleet.nodes) // 3
    found = {}
    for node, rack in enumerate(fleet.rack_of_node.tolist()):
        vbios, nic = _FIRMWARE[fleet.racks[rack].kind.gpu.name]
        release = _FORMER_RELEASE if node == repaired else _RELEASE
        found[fleet.nodes[node]] = {
            "driver": _FORMER_DRIVER if rack == left_out else _DRIVER,
            "vbios": vbios,
            "nic_firmware": f"{nic}.{release}",
            "fabric_driver": _FABRIC_DRIVER,
        }
    return found
