"""``headroom agent``: put the loop together and run it."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from headroom.agent import traffic
from headroom.agent.actuation import (
    Actuation,
    LimitPoller,
    Reports,
    journal_beside,
    open_actuation,
    warn_of_leftovers,
)
from headroom.agent.background import Background
from headroom.agent.config import DEFAULT_FILE, AgentConfig, refuse_if_readable
from headroom.agent.devices import Source, close_all
from headroom.agent.host import HostSource
from headroom.agent.loop import Agent, AgentSettings, Sampler
from headroom.agent.nvml import NvmlSource
from headroom.agent.sources.configured import open_configured
from headroom.agent.sources.periodic import Periodic
from headroom.agent.sources.storage import StorageSource
from headroom.agent.sources.training import TrainingSource
from headroom.agent.spool import Spool
from headroom.agent.table import as_tables
from headroom.agent.traffic import TrafficKeeper
from headroom.agent.traffic.queues import Matches
from headroom.agent.versions import Versions
from headroom.client import Client
from headroom.contracts import TelemetryBatch
from headroom.settings import DEFAULT_SERVER, find_token
from headroom.signals import call_on_stop
from headroom.work.launch import Separation, why_no_view
from headroom.work.runner import Runner, RunnerSettings
from headroom.work.slices import Slices
from headroom.work.users import Users, UsersError, can_change_user

__all__ = [
    "AgentOptions",
    "default_spool",
    "open_sources",
    "options_of",
    "print_once",
    "run_agent",
    "run_jobs",
    "runner_settings",
]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class AgentOptions:
    """The options of the agent, from command line, environment and configuration file."""

    server: str
    token_file: Path | None
    settings: AgentSettings
    spool: Path
    spool_max_mb: float
    spool_max_hours: float
    allow_actuation: bool
    config: AgentConfig
    #: the file that ``config`` was read from, where there is one
    config_file: Path | None = None


def options_of(config: AgentConfig, config_file: Path | None = None) -> AgentOptions:
    """Return the options in ``config``, with defaults for those that it lacks."""
    node = config.node or socket.gethostname()
    return AgentOptions(
        server=config.server or DEFAULT_SERVER,
        token_file=Path(config.token_file) if config.token_file else None,
        settings=AgentSettings(
            agent=config.agent or node, node=node, sample_s=config.sample_s, push_s=config.push_s
        ),
        spool=Path(config.spool.file) if config.spool.file else default_spool(),
        spool_max_mb=config.spool.max_mb,
        spool_max_hours=config.spool.max_hours,
        allow_actuation=config.allow_actuation,
        config=config,
        config_file=config_file or (DEFAULT_FILE if DEFAULT_FILE.exists() else None),
    )


def default_spool() -> Path:
    """Return the default path of the spool."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "headroom" / "agent-spool.sqlite"


#: How long a round of samples waits for the GPUs: so much of the interval, and at most so long, s.
_GPU_SHARE = 0.5
_GPU_WAIT_S = 0.5
#: How long a single look waits for what answers slowly, s.
_SETTLE_S = 15.0


def open_sources(
    options: AgentOptions,
    actuation: Actuation | None = None,
    shares: TrafficKeeper | None = None,
) -> list[Source]:
    """Return all sources: the host, those configured, and GPUs where there is NVML."""
    return _open(options, actuation, shares, longest_s=math.inf)


def _open(
    options: AgentOptions,
    actuation: Actuation | None,
    shares: TrafficKeeper | None,
    *,
    longest_s: float,
) -> list[Source]:
    config = options.config
    gpus = _open_nvml(actuation, config.energy_s) if config.nvml else None
    sources: list[Source] = [HostSource()] if config.host else []
    sources += open_configured(
        config,
        options.settings.node,
        lambda: gpus.gpus_by_pci if gpus else {},
        longest_s=longest_s,
        sent_by_class=shares.sent_bytes if shares else lambda _: {},
    )
    if gpus is not None:
        # They come last, for they may have to be waited for.
        wait_s = min(_GPU_SHARE * options.settings.sample_s, _GPU_WAIT_S)
        sources.append(Background(gpus, wait_s=wait_s))
    return sources


def _open_nvml(actuation: Actuation | None, energy_s: float) -> NvmlSource | None:
    try:
        import pynvml
    except ImportError:
        logger.info("no GPU readings: nvidia-ml-py is not installed")
        return None
    actuator = actuation.actuator if actuation else None
    return NvmlSource(pynvml, actuator=actuator, energy_s=energy_s)


def _slices_in(sources: Sequence[Source]) -> Slices:
    """Return what tells the MIG slices of this machine, as NVML was read last."""
    gpus = _nvml_in(sources)
    return (dict) if gpus is None else (lambda: gpus.slices)


def _nvml_in(sources: Sequence[Source]) -> NvmlSource | None:
    each = [one.source for one in sources if isinstance(one, Background)]
    return next((one for one in each if isinstance(one, NvmlSource)), None)


def _open_for_a_look(options: AgentOptions) -> list[Source]:
    """Return the sources for two samples: counters are read twice, and all else is waited for."""
    sources = _open(options, None, None, longest_s=options.settings.sample_s / 2)
    _settle(sources)
    return sources


def _settle(sources: Sequence[Source]) -> None:
    for source in sources:
        if isinstance(source, Background | Periodic | StorageSource):
            source.settle(_SETTLE_S)


def print_once(options: AgentOptions, *, is_table: bool = False) -> str:
    """Return one batch of this machine, as JSON or as tables. Needs no server."""
    batch = _look(options)
    if is_table:
        return as_tables(batch)
    return msgspec.json.format(msgspec.json.encode(batch), indent=2).decode()


def _look(options: AgentOptions) -> TelemetryBatch:
    sources = _open_for_a_look(options)
    sampler = Sampler(options.settings, sources)
    sampler.sample()
    threading.Event().wait(options.settings.sample_s)  # rates need two looks
    sampler.sample()
    close_all(sources)
    return sampler.seal()


def run_agent(options: AgentOptions, *, once: bool) -> bool:
    """Run the agent until SIGTERM or SIGINT; or once: then return whether all was taken."""
    token = find_token(options.token_file)
    spool = Spool(
        options.spool,
        max_bytes=int(options.spool_max_mb * 1024 * 1024),
        max_age_s=options.spool_max_hours * 3600,
    )
    if once:
        return _run_once(options, token, spool)
    reports = Reports(time.time)
    actuation = _actuation(options, reports)
    with Client(options.server, token) as client, contextlib.ExitStack() as stack:
        shares = _traffic(options, reports)
        sources = open_sources(options, actuation, shares)
        training = TrainingSource() if options.config.allow_jobs else None
        agent = Agent(
            options.settings,
            sources if training is None else [*sources, training],
            spool,
            client,
            limit_reports=reports,
            before_last_word=shares.stop if shares else None,
            checkpoint_reports=training.take_stores if training else None,
            versions=_versions_of(options, sources, training),
        )
        if shares:
            stack.enter_context(shares)
        if actuation or shares:
            stack.enter_context(
                LimitPoller(
                    client,
                    actuation.leases if actuation else None,
                    every_s=options.settings.push_s,
                    shares=shares.leases if shares else None,
                    links=shares.links if shares else (),
                )
            )
        if options.config.allow_jobs:
            runner = Runner(
                runner_settings(options),
                client,
                training=training,
                limit_reports=reports,
                slices=_slices_in(sources),
            )
            stack.enter_context(runner)
        call_on_stop(agent.stop)
        agent.run()
    return True


def _versions_of(
    options: AgentOptions, sources: Sequence[Source], training: TrainingSource | None
) -> Versions:
    """Return what tells of the versions on this node."""
    found = (_nvml_in(sources), training)
    return Versions(options.settings.node, [each.versions for each in found if each is not None])


def run_jobs(options: AgentOptions) -> None:
    """Run jobs, and read nothing, until SIGTERM or SIGINT. Running jobs then run on."""
    token = find_token(options.token_file)
    stop = threading.Event()
    with Client(options.server, token) as client, Runner(runner_settings(options), client):
        call_on_stop(stop.set)
        stop.wait()


def runner_settings(options: AgentOptions) -> RunnerSettings:
    """Return where jobs are kept (by default beside the spool) and as whom they run.

    Raises :class:`UsersError` and :class:`ConfigError` where that cannot be.
    """
    work = options.config.work
    return RunnerSettings(
        node=options.settings.node,
        folder=Path(work.folder) if work.folder else options.spool.with_name("jobs"),
        log_bytes=int(work.log_mb * 1024 * 1024),
        limits=work.limits,
        disk_bytes=int(work.disk_gb * 1e9) if work.disk_gb else None,
        pids=work.pids,
        memory_bytes=int(work.memory_gb * 1e9) if work.memory_gb else None,
        separation=_separation(options),
        is_shared=work.shared_user,
        frozen_s=work.frozen_s,
        allow_shell=work.allow_shell,
        server_url=options.server,
    )


def _separation(options: AgentOptions) -> Separation | None:
    """Return how jobs are kept apart; None: they run as the agent's own user."""
    work = options.config.work
    if work.shared_user:
        return None
    if not can_change_user():
        if work.users or work.default_user:
            raise UsersError("only root may run jobs as other users: [work] users asks for that")
        logger.warning(
            "jobs run as the agent's own user, of one project at a time, and can read and end "
            "what is the agent's: run it as root to keep them apart"
        )
        return None
    users = Users(work.users, default=work.default_user, uids=work.uids, groups=work.groups)
    if options.token_file is not None:
        refuse_if_readable(options.token_file)
    secret = [path for path in (options.token_file, options.config_file) if path is not None]
    why = why_no_view() if work.private_view else "private_view is off"
    if why:
        logger.warning(
            "jobs see each other's processes and share temporary folders", extra={"cause": why}
        )
    hidden = [path.absolute() for path in (*secret, options.spool)]
    return Separation(users, view=not why, hidden=hidden)


def _run_once(options: AgentOptions, token: str, spool: Spool) -> bool:
    sources = _open_for_a_look(options)
    try:
        with Client(options.server, token) as client:
            return Agent(options.settings, sources, spool, client).run_once()
    finally:
        close_all(sources)


def _actuation(options: AgentOptions, reports: Reports) -> Actuation | None:
    journal = journal_beside(options.spool)
    if options.allow_actuation:
        return open_actuation(options.settings.node, journal, reports)
    warn_of_leftovers(journal)
    return None


def _traffic(options: AgentOptions, reports: Reports) -> TrafficKeeper | None:
    wanted, links = options.config.traffic, options.config.ethernet.links
    if not wanted.enabled:
        traffic.warn_of_leftovers(links)
        return None
    ports = {each: tuple(ports) for each, ports in wanted.ports.items()}
    return traffic.open_traffic(
        options.settings.node, links, Matches(ports, wanted.unmarked), reports
    )
