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
        """Yield one row for each GPU; raise for lines that cannot be read."""
        text = self._http.get(self._url, headers={"Accept": "text/plain"}).decode(errors="replace")
        wrong: list[str] = []
        readings = dcgm.gather(_series(text, wrong))
        if not readings and wrong:
            raise SourceError(f"{self._url} does not speak Prometheus' text format: {wrong[0]}")
        if not readings:
            raise SourceError(f"{self._url} tells nothing of any GPU")
        yield from (self._row(reading) for reading in readings)
        if wrong:
            more = f", and {len(wrong) - 1} lines more" if len(wrong) > 1 else ""
            raise SourceError(f"{self._url}: {wrong[0]}{more}")

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


def _series(text: str, wrong: list[str]) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """Yield metric, labels and value of each sample; put into ``wrong`` what cannot be read."""
    for number, line in enumerate(text.split("\n"), start=1):
        # Types and help texts tell nothing that the names of DCGM's fields do not.
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            (family,) = text_string_to_metric_families(line)
            (sample,) = family.samples
        except (ValueError, KeyError, IndexError, TypeError) as exc:
            wrong.append(f"line {number} is no sample ({_shortened(exc)}): {line.strip()[:80]!r}")
        else:
            yield sample.name, sample.labels, sample.value


def _shortened(exc: Exception) -> str:
    return str(exc).partition("\n")[0][:80] or type(exc).__name__
