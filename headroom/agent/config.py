"""The agent's configuration file: TOML, checked in full before anything starts."""

from __future__ import annotations

import difflib
import re
import socket
import stat
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from headroom.agent.sources.redfish.service import Credentials
from headroom.contracts import Name
from headroom.errors import HeadroomError
from headroom.traffic import TrafficClass
from headroom.work.users import DEFAULT_UIDS

__all__ = [
    "DEFAULT_FILE",
    "AgentConfig",
    "ConfigError",
    "DcgmConfig",
    "EthernetConfig",
    "InfinibandConfig",
    "KernelLogConfig",
    "MeterConfig",
    "MountConfig",
    "RedfishConfig",
    "SpoolConfig",
    "StorageConfig",
    "TrafficConfig",
    "WorkConfig",
    "load",
    "overlaid",
    "read_credentials",
    "refuse_if_readable",
]

DEFAULT_FILE = Path("/etc/headroom/agent.toml")
_REFERENCE = "docs/reference/agent-configuration.md"

_Positive: TypeAlias = Annotated[float, Meta(gt=0, le=1e9)]
#: The server joins readings of an energy counter that are no further apart than 15 s.
_EnergySeconds: TypeAlias = Annotated[float, Meta(ge=0, le=14)]
_Seconds: TypeAlias = Annotated[float, Meta(ge=1, le=86_400)]
#: Boards behind Redfish are small computers, and have other things to do.
_PoliteSeconds: TypeAlias = Annotated[float, Meta(ge=5, le=86_400)]
_AbsolutePath: TypeAlias = Annotated[str, Meta(pattern=r"^/[^\x00]*$")]
_Account: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]{0,31}\$?$")]
_Port: TypeAlias = Annotated[int, Meta(ge=1, le=65_535)]
_Uid: TypeAlias = Annotated[int, Meta(ge=1000, le=2**32 - 3)]
_Resource: TypeAlias = Annotated[str, Meta(pattern=r"^/redfish/[^\s?]*$")]

S = TypeVar("S", bound=Struct)


class ConfigError(HeadroomError):
    """The configuration file cannot be used."""


class _Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file. A key that is not known is an error: it is a typing mistake."""


class SpoolConfig(_Section, frozen=True):
    """Where batches wait, and how many."""

    file: _AbsolutePath | None = None
    max_mb: _Positive = 256
    max_hours: _Positive = 72


class InfinibandConfig(_Section, frozen=True):
    """InfiniBand and RoCE ports: ``links`` maps ``DEVICE/PORT`` to names in the inventory."""

    enabled: bool = True
    interval_s: _Seconds = 5
    links: dict[str, Name] = {}


class EthernetConfig(_Section, frozen=True):
    """Ethernet interfaces: ``links`` maps their names to names in the inventory."""

    interval_s: _Seconds = 5
    links: dict[str, Name] = {}


class TrafficConfig(_Section, frozen=True):
    """Whether links are shared by class of traffic here, and what is of which class.

    Ports of either end count beside marks; what is neither marked nor of a known port is of class
    ``unmarked``.
    """

    enabled: bool = False
    ports: dict[TrafficClass, list[_Port]] = msgspec.field(
        default_factory=lambda: {TrafficClass.OPERATOR: [22]}
    )
    unmarked: TrafficClass = TrafficClass.DATA


class KernelLogConfig(_Section, frozen=True):
    """Where the kernel logs Xids."""

    enabled: bool = True
    path: _AbsolutePath = "/dev/kmsg"


class MountConfig(_Section, frozen=True):
    """A folder on a mount, which the agent may write to; ``name`` is the path's by default."""

    path: _AbsolutePath
    name: Name | None = None
    mounted: bool = True


class StorageConfig(_Section, frozen=True):
    """The mounts to probe, and how often."""

    interval_s: _PoliteSeconds = 60
    deadline_s: _Seconds = 10
    mounts: list[MountConfig] = []


class DcgmConfig(_Section, frozen=True):
    """One dcgm-exporter."""

    url: str
    interval_s: _Seconds = 10
    timeout_s: _Seconds = 5
    node: Name | None = None
    nodes: dict[str, Name] = {}


class MeterConfig(_Section, frozen=True):
    """One meter, and the resources that have its readings."""

    meter: Name
    chassis: _Resource | None = None
    power: _Resource | None = None
    energy: _Resource | None = None
    temp: _Resource | None = None


class RedfishConfig(_Section, frozen=True):
    """One Redfish service: a baseboard, a chassis manager or a PDU."""

    url: str
    meters: Annotated[list[MeterConfig], Meta(min_length=1)]
    secrets_file: _AbsolutePath | None = None
    auth: Literal["session", "basic"] = "session"
    verify_certificate: bool = True
    ca_file: _AbsolutePath | None = None
    interval_s: _PoliteSeconds = 30
    timeout_s: _Seconds = 10


class WorkConfig(_Section, frozen=True):
    """Where jobs are kept, as whom they run, and how much of the machine each may take.

    It takes ``allow_jobs`` besides.
    """

    folder: _AbsolutePath | None = None
    log_mb: _Positive = 8
    limits: bool = True
    #: Of the folders of one job, at most; None: by its share of the GPUs.
    disk_gb: _Positive | None = None
    #: Memory of one job, at most; None: its share alone.
    memory_gb: _Positive | None = None
    #: Processes and threads of one job, at most; None: a quarter of the machine's.
    pids: Annotated[int, Meta(ge=16, le=4_194_304)] | None = None
    #: The account of each project's jobs, and that of all others; else each attempt gets a uid.
    users: dict[str, _Account] = {}
    default_user: _Account | None = None
    uids: tuple[_Uid, _Uid] = DEFAULT_UIDS
    #: The groups that jobs are in, beside that of their user.
    groups: list[_Account] = []
    #: Whether all jobs run as the agent's own user.
    shared_user: bool = False
    #: Whether each job has its own view of processes and of temporary folders.
    private_view: bool = True
    #: Whether those who have submitted a job may open a terminal in it.
    allow_shell: bool = False
    #: How long what the server no longer confirms stands still before it is ended.
    frozen_s: _Positive = 6 * 3600


class AgentConfig(_Section, frozen=True):
    """All of the file. Keys left out are as the command line sets them, or default."""

    server: str | None = None
    token_file: _AbsolutePath | None = None
    agent: Name | None = None
    node: Name | None = None
    sample_s: _Positive = 1
    push_s: _Positive = 5
    #: How often the energy counters of GPUs are read; 0: in each sample.
    energy_s: _EnergySeconds = 10
    allow_actuation: bool = False
    #: Whether jobs of the server may be run here.
    allow_jobs: bool = False
    work: WorkConfig = WorkConfig()
    #: Whether to read this machine itself, and its GPUs through NVML.
    host: bool = True
    nvml: bool = True
    spool: SpoolConfig = SpoolConfig()
    infiniband: InfinibandConfig = InfinibandConfig()
    ethernet: EthernetConfig = EthernetConfig()
    traffic: TrafficConfig = TrafficConfig()
    kernel_log: KernelLogConfig = KernelLogConfig()
    storage: StorageConfig = StorageConfig()
    dcgm: list[DcgmConfig] = []
    redfish: list[RedfishConfig] = []


class _Secrets(_Section, frozen=True):
    username: str
    password: str


def load(path: Path | None) -> AgentConfig:
    """Read the file; without ``path`` the default one, which may be missing.

    Raises :class:`ConfigError`, which names the key and the way out.
    """
    if path is None:
        if not DEFAULT_FILE.exists():
            return AgentConfig()
        path = DEFAULT_FILE
    config = _decode(path, _read(path), AgentConfig)
    for key, problem in _problems(config):
        raise ConfigError(f"{path}: {key}: {problem}")
    return config


def overlaid(
    config: AgentConfig,
    *,
    server: str | None = None,
    token_file: Path | None = None,
    node: str | None = None,
    agent: str | None = None,
    sample_s: float | None = None,
    push_s: float | None = None,
    allow_actuation: bool = False,
    allow_jobs: bool = False,
    work_folder: Path | None = None,
    shared_user: bool = False,
    spool_file: Path | None = None,
    spool_max_mb: float | None = None,
    spool_max_hours: float | None = None,
    dcgm: str | None = None,
) -> AgentConfig:
    """Return ``config`` with the given options over its own. None, empty, False: not given."""
    spool = _put_over(
        config.spool, file=_absolute(spool_file), max_mb=spool_max_mb, max_hours=spool_max_hours
    )
    over = _put_over(
        config,
        server=server,
        token_file=_absolute(token_file),
        node=node,
        agent=agent,
        sample_s=sample_s,
        push_s=push_s,
        allow_actuation=allow_actuation,
        allow_jobs=allow_jobs,
        work=_put_over(config.work, folder=_absolute(work_folder), shared_user=shared_user),
        spool=spool,
    )
    if dcgm is None:
        return over
    exporter = DcgmConfig(url=dcgm, node=over.node or socket.gethostname())
    over = msgspec.structs.replace(over, nvml=False, dcgm=[*over.dcgm, exporter])
    for _, problem in _bad_urls(msgspec.structs.replace(over, server=None, redfish=[])):
        raise ConfigError(f"--dcgm: {problem}")
    return over


def _put_over(section: S, **said: object) -> S:
    return msgspec.structs.replace(section, **{key: value for key, value in said.items() if value})


def _absolute(path: Path | None) -> str | None:
    return None if path is None else str(path.absolute())


def read_credentials(path: Path) -> Credentials:
    """Read a file with ``username`` and ``password``, which not everybody may read."""
    text = _read(path)
    refuse_if_readable(path)
    secrets = _decode(path, text, _Secrets)
    return Credentials(secrets.username, secrets.password)


def refuse_if_readable(path: Path) -> None:
    """Raise :class:`ConfigError` where everybody can read a file that holds a secret."""
    if stat.S_IMODE(path.stat().st_mode) & stat.S_IRWXO:
        raise ConfigError(f"{path}: everybody can read it: chmod o-rwx {path}")


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{path}: cannot be read: {exc}") from exc


def _decode(path: Path, text: str, kind: type[S]) -> S:
    try:
        return msgspec.convert(tomllib.loads(text), kind)
    except tomllib.TOMLDecodeError as exc:
        raise ConfigError(f"{path}: is not TOML: {exc}") from exc
    except msgspec.ValidationError as exc:
        raise ConfigError(f"{path}: {_told(str(exc), kind)}") from exc


def _told(message: str, kind: type[Struct]) -> str:
    """Return a message with place and cause, in the file's own words, and a likely correction."""
    problem, _, place = message.partition(" - at `$")
    key = place.rstrip("`").lstrip(".")
    unknown = re.fullmatch(r"Object contains unknown field `(.*)`", problem)
    if unknown is None:
        return f"{key}: {problem}; see {_REFERENCE}" if key else f"{problem}; see {_REFERENCE}"
    full = f"{key}.{unknown[1]}" if key else unknown[1]
    near = difflib.get_close_matches(unknown[1], set(_keys(kind)), n=1)
    hint = f"did you mean {near[0]}?" if near else f"see {_REFERENCE}"
    return f"{full}: there is no such key; {hint}"


def _keys(kind: type[Struct]) -> Iterator[str]:
    """Yield the keys of a table and of all below it."""
    for field in msgspec.structs.fields(kind):
        yield field.encode_name
        for inner in _structs_in(field.type):
            yield from _keys(inner)


def _structs_in(type_: Any) -> Iterator[type[Struct]]:
    if isinstance(type_, type) and issubclass(type_, Struct):
        yield type_
    for inner in getattr(type_, "__args__", ()):
        yield from _structs_in(inner)


def _problems(config: AgentConfig) -> Iterator[tuple[str, str]]:
    """Yield the errors of values that are each valid alone: the key, and why."""
    yield from _bad_urls(config)
    if config.work.uids[0] > config.work.uids[1]:
        yield "work.uids", "the first is above the last: write [FIRST, LAST]"
    if config.work.shared_user and (config.work.users or config.work.default_user):
        yield "work.shared_user", "it does not go with users and default_user: leave one out"
    yield from _twice("ethernet.links", config.ethernet.links.values())
    if config.traffic.enabled and not config.ethernet.links:
        yield "traffic.enabled", "no interface is known: name its link under [ethernet] links"
    ports = (str(port) for each in config.traffic.ports.values() for port in each)
    yield from _twice("traffic.ports", ports)
    for name in config.ethernet.links if config.traffic.enabled else ():
        if not re.fullmatch(r"[^\s/]{1,15}", name):
            yield f"ethernet.links.{name}", "an interface has 1 to 15 characters, and no space"
    links = [*config.infiniband.links.values(), *config.ethernet.links.values()]
    yield from _twice("infiniband.links", links)
    yield from _twice("storage.mounts", (m.name or m.path for m in config.storage.mounts))
    meters = [meter for service in config.redfish for meter in service.meters]
    yield from _twice("redfish.meters", (meter.meter for meter in meters))
    for meter in meters:
        if not (meter.chassis or meter.power or meter.energy or meter.temp):
            yield "redfish.meters", f"{meter.meter} needs chassis, power, energy or temp"
    for port in config.infiniband.links:
        if not re.fullmatch(r"[^/\s]+/\d+", port):
            yield f"infiniband.links.{port}", "a port is written DEVICE/NUMBER, such as mlx5_0/1"


def _bad_urls(config: AgentConfig) -> Iterator[tuple[str, str]]:
    urls = [("server", config.server)] if config.server else []
    urls += [(f"dcgm[{i}].url", each.url) for i, each in enumerate(config.dcgm)]
    urls += [(f"redfish[{i}].url", each.url) for i, each in enumerate(config.redfish)]
    for key, url in urls:
        parts = urlsplit(url or "")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            yield key, f"{url!r} is no URL: it needs a scheme and a host, such as https://10.0.0.5"
        elif parts.username or parts.password:
            yield key, "a URL is no place for a password: use secrets_file"


def _twice(key: str, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    for name, count in Counter(names).items():
        if count > 1:
            yield key, f"{name} is given {count} times"
