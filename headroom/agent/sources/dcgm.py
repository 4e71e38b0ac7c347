"""The text that dcgm-exporter offers to Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.parser import text_string_to_metric_families

from headroom import dcgm
from headroom.agent.devices import Block, Row
from headroom.agent.sources.http import Http
from headroom.agent.sources.periodic import SourceError

__all__ = ["DcgmPoller"]

#: A node of 16 GPUs with every counter has a few hundred KB.
_MOST_BYTES = 16 * 1024 * 1024


class DcgmPoller:
    """One exporter.

    Its GPUs are ``node``'s, where that is given; else those of the nodes that ``nodes`` maps the
    exporter's host names to, or of nodes that are called like the hosts.
    """

    block: Block = "gpus"

    def __init__(
        self, url: str, *, node: str, nodes: Mapping[str, str], timeout_s: float = 5.0
    ) -> None:
        self._url = url
        self._node = node
        self._nodes = nodes
        self._http = Http(timeout_s=timeout_s, most_bytes=_MOST_BYTES)
        self._xids: dict[tuple[str, int], float] = {}

    def poll(self) -> Iterable[Row]:
        """Return one row for each GPU."""
        text = self._http.get(self._url, headers={"Accept": "text/plain"}).decode(errors="replace")
        try:
            readings = dcgm.gather(_series(text))
        except ValueError as exc:
            raise SourceError(f"{self._url} does not speak Prometheus' text format: {exc}") from exc
        if not readings:
            raise SourceError(f"{self._url} tells nothing of any GPU")
        return [self._row(reading) for reading in readings]

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def _row(self, reading: dcgm.GpuReading) -> Row:
        node = self._node or self._nodes.get(reading.host, reading.host)
        row: dict[str, float | str | None] = {"gpu": reading.gpu, **reading.values}
        row["xid"] = self._new_xid(node, reading)
        return {**row, "node": node or None, "job": reading.job}

    def _new_xid(self, node: str, reading: dcgm.GpuReading) -> float | None:
        """Return the Xid, if it is not the one that was there before: DCGM tells the last ever."""
        told = reading.values.get("xid")
        if told is None:
            return None
        before = self._xids.get((node, reading.gpu))
        self._xids[node, reading.gpu] = told
        return told if told and before is not None and told != before else None


def _series(text: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            # The parser adds "_total" to counters that lack it, as DCGM's do.
            name = sample.name.removesuffix("_total")
            yield name if dcgm.field_of(name) else sample.name, sample.labels, sample.value
