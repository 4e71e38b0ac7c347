"""The sources that the configuration asks for, besides the host and the GPUs of the machine."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from headroom.agent.config import AgentConfig, DcgmConfig, RedfishConfig, read_credentials
from headroom.agent.devices import Source
from headroom.agent.sources.ethernet import EthernetPoller, SentBytes
from headroom.agent.sources.http import Http
from headroom.agent.sources.infiniband import InfinibandPoller
from headroom.agent.sources.kernel_log import KernelLog
from headroom.agent.sources.periodic import Periodic
from headroom.agent.sources.redfish import RedfishMeter, RedfishPoller, Service
from headroom.agent.sources.storage import Mount, StorageSource
from headroom.errors import HeadroomError

__all__ = ["GpusByAddress", "MissingPackage", "open_configured"]

logger = logging.getLogger(__name__)

#: Which GPU has which PCI address, as far as is known now.
GpusByAddress = Callable[[], Mapping[tuple[int, int, int], int]]

_SYSFS_INFINIBAND = Path("/sys/class/infiniband")
#: The longest resource of a Redfish service that is read.
_MOST_BYTES = 4 * 1024 * 1024


class MissingPackage(HeadroomError):
    """A package that this needs is not installed."""


def open_configured(
    config: AgentConfig,
    node: str,
    gpus: GpusByAddress,
    *,
    longest_s: float = math.inf,
    sent_by_class: SentBytes = lambda _: {},
) -> list[Source]:
    """Start configured sources that are present. ``longest_s`` bounds intervals of local counters.

    ``sent_by_class`` tells what interfaces have sent of each class of traffic.

    Raises ``HeadroomError`` where something that was asked for cannot be started at all.
    """
    return [
        *_infiniband(config, node, longest_s),
        *_ethernet(config, longest_s, sent_by_class),
        *_kernel_log(config, gpus),
        *_storage(config),
        *(_dcgm(exporter) for exporter in config.dcgm),
        *(_redfish(service) for service in config.redfish),
    ]


def _infiniband(config: AgentConfig, node: str, longest_s: float) -> Iterator[Source]:
    wanted = config.infiniband
    if wanted.enabled and _SYSFS_INFINIBAND.is_dir():
        poller = InfinibandPoller(node, wanted.links, root=_SYSFS_INFINIBAND)
        yield Periodic(poller, name="infiniband", interval_s=min(wanted.interval_s, longest_s))


def _ethernet(config: AgentConfig, longest_s: float, sent_by_class: SentBytes) -> Iterator[Source]:
    wanted = config.ethernet
    if wanted.links:
        poller = EthernetPoller(wanted.links, sent_by_class=sent_by_class)
        yield Periodic(poller, name="ethernet", interval_s=min(wanted.interval_s, longest_s))


def _kernel_log(config: AgentConfig, gpus: GpusByAddress) -> Iterator[Source]:
    if not config.kernel_log.enabled:
        return
    try:
        yield KernelLog.open(Path(config.kernel_log.path), gpus)
    except OSError as exc:
        logger.info("no Xids from the kernel log", extra={"cause": exc})


def _storage(config: AgentConfig) -> Iterator[Source]:
    wanted = config.storage
    mounts = [
        Mount(path=Path(each.path), name=each.name or each.path, is_mounted=each.mounted)
        for each in wanted.mounts
    ]
    if mounts:
        yield StorageSource(mounts, interval_s=wanted.interval_s, deadline_s=wanted.deadline_s)


def _dcgm(wanted: DcgmConfig) -> Source:
    try:
        from headroom.agent.sources.dcgm import DcgmPoller
    except ModuleNotFoundError as exc:
        raise MissingPackage(f"{exc.name} is not installed: pip install 'headroom[agent]'") from exc
    poller = DcgmPoller(
        wanted.url, node=wanted.node or "", nodes=wanted.nodes, timeout_s=wanted.timeout_s
    )
    host = urlsplit(wanted.url).netloc
    return Periodic(poller, name=f"dcgm {host}", interval_s=wanted.interval_s)


def _redfish(wanted: RedfishConfig) -> Source:
    http = Http(
        timeout_s=wanted.timeout_s,
        most_bytes=_MOST_BYTES,
        verify=wanted.verify_certificate,
        ca_file=Path(wanted.ca_file) if wanted.ca_file else None,
    )
    parts = urlsplit(wanted.url)
    credentials = None
    if wanted.secrets_file:
        credentials = read_credentials(Path(wanted.secrets_file))
        if parts.scheme == "http" or not wanted.verify_certificate:
            logger.warning(
                "a password goes to a service that may be anyone", extra={"url": wanted.url}
            )
    service = Service(wanted.url, http, credentials=credentials, auth=wanted.auth)
    meters = [
        RedfishMeter(
            meter=each.meter,
            chassis=each.chassis or "",
            power=each.power or "",
            energy=each.energy or "",
            temp=each.temp or "",
        )
        for each in wanted.meters
    ]
    return Periodic(
        RedfishPoller(service, meters),
        name=f"redfish {parts.netloc}",
        interval_s=wanted.interval_s,
        deadline_s=max(30.0, 3 * wanted.timeout_s),
    )
