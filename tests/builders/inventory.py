"""Inventories of any size, as YAML text."""

from __future__ import annotations

from collections.abc import Iterator

HARDWARE = """\
hardware_models:
  - {name: H100-SXM5-80GB, kind: gpu, vendor: NVIDIA, rated_w: 700, idle_w: 70,
     slowdown_c: 87, slowdown_mem_c: 95, shutdown_c: 92, sm_max_mhz: 1980, mem_bytes: 85520809984}
  - {name: HGX-H100-host, kind: node, rated_w: 4600, idle_w: 1400}
"""

_SITE = """\
  - name: {site}
    budget_w: {budget_w}
    time_zone: Europe/Oslo
    power_domains:
      - {{name: utility, kind: utility, capacity_w: {utility_w}, derating: 0.8}}
      - {{name: feed-a1, kind: feed, parent: utility, capacity_w: {utility_w}, derating: 0.8,
         pair: feed-1, side: A}}
      - {{name: feed-b1, kind: feed, parent: utility, capacity_w: {utility_w}, derating: 0.8,
         pair: feed-1, side: B}}
    cooling_zones:
      - {{name: hall-1, kind: rear-door, capacity_w: {utility_w}, supply_c: 22}}
    storage_endpoints:
      - {{name: nvme-1, capacity_bytes_per_s: 2e11}}
    racks:
"""

_RACK = """\
      - name: {rack}
        row: {row}
        position: {position}
        height_u: {height_u}
        budget_w: 44000
        feed_a: feed-a1
        feed_b: feed-b1
        cooling_zone: hall-1
        nodes:
"""

_RACK_U = 48
_NODE = """\
          - name: {node}
            model: HGX-H100-host
            position_u: {position_u}
            height_u: {height_u}
            switch_domain: leaf-{row}
            storage_endpoint: nvme-1
            labels: {{pool: train}}
            gpus: {{model: H100-SXM5-80GB, count: {gpus}}}
"""

_UPLINK = """\
  - {{name: {site}/{rack}/uplink, kind: leaf-uplink, site: {site}, rack: {rack},
     capacity_bits_per_s: 3.2e12, latency_s: 0.000002, control_share: 0.05}}
"""

_METER = """\
  - {{name: {site}/{feed}, kind: power, site: {site}, power_domain: {feed}}}
"""


def make_inventory(
    *,
    gpus: int,
    sites: int = 1,
    gpus_per_node: int = 8,
    nodes_per_rack: int = 4,
    racks_per_row: int = 20,
) -> str:
    """Return an inventory of ``gpus`` GPUs, spread over ``sites`` sites called site-1, site-2, ….

    Each rack has an uplink, each site an A/B pair of feeds with a meter each.
    """
    fleet = [
        _Site(f"site-{place + 1}", size, gpus_per_node, nodes_per_rack, racks_per_row)
        for place, size in enumerate(_shares(gpus, sites))
    ]
    return "".join(
        [
            HARDWARE,
            "sites:\n",
            *(part for site in fleet for part in site.text()),
            "links:\n",
            *(_UPLINK.format(site=site.name, rack=rack) for site in fleet for rack in site.racks()),
            "meters:\n",
            *(
                _METER.format(site=site.name, feed=feed)
                for site in fleet
                for feed in ("feed-a1", "feed-b1")
            ),
        ]
    )


def _shares(total: int, parts: int) -> list[int]:
    return [total // parts + (part < total % parts) for part in range(parts)]


class _Site:
    def __init__(
        self, name: str, gpus: int, gpus_per_node: int, nodes_per_rack: int, racks_per_row: int
    ) -> None:
        self.name = name
        self._gpus_per_node = gpus_per_node
        self._nodes_per_rack = nodes_per_rack
        self._racks_per_row = racks_per_row
        full, rest = divmod(gpus, gpus_per_node)
        self._nodes = [gpus_per_node] * full + [rest] * bool(rest)

    def racks(self) -> list[str]:
        count = -(-len(self._nodes) // self._nodes_per_rack)
        return [f"R{place + 1:04}" for place in range(count)]

    def text(self) -> Iterator[str]:
        utility_w = 20_000 * max(len(self._nodes), 1)
        yield _SITE.format(site=self.name, budget_w=utility_w * 0.8, utility_w=utility_w)
        height_u = min(8, _RACK_U // self._nodes_per_rack)
        for place, rack in enumerate(self.racks()):
            row, position = divmod(place, self._racks_per_row)
            yield _RACK.format(
                rack=rack, row=f"row-{row + 1:02}", position=position, height_u=_RACK_U
            )
            first = place * self._nodes_per_rack
            for slot, gpus in enumerate(self._nodes[first : first + self._nodes_per_rack]):
                yield _NODE.format(
                    node=f"{self.name}-{rack.lower()}-n{slot + 1}",
                    position_u=1 + slot * height_u,
                    height_u=height_u,
                    row=f"row-{row + 1:02}",
                    gpus=gpus,
                )
