"""One command for everything: `python -m config.up`.

Starts the embedded servers (unless DATABASE_URL or REDIS_URL replace them), prepares the
database, keeps web, worker, beat, demo fleet and machine agent running, and stops all in order.
"""

from __future__ import annotations

import argparse
import http.client
import os
import secrets
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType

from config.embedded import EmbeddedError, EmbeddedServers
from config.embedded.answering import ServerVigil
from config.embedded.ports import port_is_free
from config.embedded.state import read_env, write_env
from config.process import command
from config.supervisor import Output, Service, Supervisor
from headroom import heartbeat

__all__ = ["main", "parse", "services"]

REPOSITORY = Path(__file__).resolve().parents[1]
_PATIENCE_S = 60.0
_PROBE_EVERY_S = 0.1
_TRIM_EVERY_S = 60.0
#: systemd hears of the supervisor, and the supervisor of them.
_NOT_FOR_SERVICES = frozenset({"DATABASE_OWNER_URL", "DATABASE_SUPERUSER_URL", heartbeat.NOTIFY})
#: A process whose loop is to go round each second and has not for so long hangs, s.
_SILENT_S = 15.0
#: What ``--services`` chooses from.
_SERVICES = ("web", "worker", "housekeeper", "beat", "agent")


class UpError(Exception):
    """Headroom cannot start; the message says the way out."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until asked to stop; return the exit status."""
    options = parse(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return _run(options)
    except (EmbeddedError, UpError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    except KeyboardInterrupt:
        # During the start of the servers, before the supervisor answers signals itself.
        return 128 + signal.SIGINT


def _run(options: argparse.Namespace) -> int:
    servers = EmbeddedServers(
        options.state_dir,
        postgres=not os.environ.get("DATABASE_URL"),
        valkey=not os.environ.get("REDIS_URL"),
    )
    servers.lock()
    try:
        if not port_is_free(options.port, options.host):
            raise UpError(
                f"port {options.port} on {options.host} is taken. "
                "Stop what listens there, or give another with --port."
            )
        # A database that recovers may take minutes, in which our own loop does not go round.
        started = heartbeat.keep()
        try:
            servers.start()
        finally:
            started.set()
        return _serve(options, servers)
    finally:
        servers.stop()


def _serve(options: argparse.Namespace, servers: EmbeddedServers) -> int:
    state = servers.state_dir
    url = base_url(options.host, options.port)
    settings = installation(state / "env", servers.environment, url)
    keep_owner(state / "owner-env", servers.owner_url)
    output = Output(state / "logs")
    is_first = not (state / "admin-password").exists()
    probe = _Probe(options.host, options.port)
    supervisor = Supervisor(
        services(options, state, url),
        output,
        # The owner's URL is read by `manage.py prepare` from its file, and by no service.
        env={name: value for name, value in os.environ.items() if name not in _NOT_FOR_SERVICES}
        | settings
        | {
            "HEADROOM_STATE_DIR": str(state),
            "PROMETHEUS_MULTIPROC_DIR": str(_emptied(state / "metrics")),
            "PYTHONUNBUFFERED": "1",
            # A process that hangs says where before it is ended.
            "PYTHONFAULTHANDLER": "1",
            heartbeat.FOLDER: str(_emptied(state / "heartbeats")),
        },
        cwd=REPOSITORY,
        # Without a web service nobody is waited for, and nobody waits.
        is_ready=probe.look if "web" in options.services else lambda: False,
        on_ready=lambda: output.show(_welcome(url, state, reveal=is_first)),
        watch=_watcher(servers, output),
        heartbeats=state / "heartbeats",
        report=state / "services.json",
    )
    try:
        prepare = Service("prepare", (sys.executable, "manage.py", *_preparation(options)))
        status = supervisor.run_once(prepare)
        if status is None:
            return 0
        if status != 0:
            raise UpError(
                f"manage.py prepare failed (status {status}); what it said is above and in "
                f"{state / 'logs' / 'prepare.log'}"
            )
        supervisor.run()
        output.show("Stopping the servers.\n")
    finally:
        output.close()
    return 0


def base_url(host: str, port: int) -> str:
    """Return the URL under which this machine reaches a server that listens on `host`."""
    return f"http://{_authority(host)}:{port}"


def installation(path: Path, embedded: Mapping[str, str], url: str) -> dict[str, str]:
    """Return the settings of this installation, and keep them in the file `path`.

    The environment comes first, then the embedded servers; what is secret is made once.
    """
    kept = read_env(path)
    settings = {
        name: os.environ.get(name) or embedded[name] for name in ("DATABASE_URL", "REDIS_URL")
    }
    for name in ("SECRET_KEY", "METRICS_TOKEN"):
        settings[name] = os.environ.get(name) or kept.get(name) or secrets.token_urlsafe(50)
    settings["HEADROOM_URL"] = url
    write_env(path, settings)
    return settings


def keep_owner(path: Path, embedded: str | None) -> None:
    """Keep the URL of the schema's owner in the file `path`; without one, no file."""
    url = os.environ.get("DATABASE_OWNER_URL") or embedded
    if url:
        write_env(path, {"DATABASE_OWNER_URL": url})
    else:
        path.unlink(missing_ok=True)


def services(options: argparse.Namespace, state: Path, url: str) -> list[Service]:
    """Return the services to run, in the order of their start: those that ``options`` name.

    Stopped are first those who send, then those who take in, then those who store.
    """
    python = (sys.executable, "-m")
    web = Service("web", command("web", *_web_flags(options)), stop_rank=2, silent_s=_SILENT_S)
    worker = Service("worker", command("worker"), stop_rank=4, silent_s=_SILENT_S)
    housekeeper = Service(
        "housekeeper",
        command("housekeeper"),
        stop_rank=4,
        # A reading that waits for a core is late; a roll-up is not.
        niceness=10,
        silent_s=2 * _SILENT_S,
    )
    beat = Service("beat", command("beat"), stop_rank=3, silent_s=_SILENT_S)
    demo = Service(
        "demo",
        (*python, "lab", "demo", "--server", url, "--token-file", str(state / "demo-token")),
        stop_rank=0,
        needs_ready=True,
        silent_s=2 * _SILENT_S,
    )
    agent = Service(
        "agent",
        (
            # Not the file of an agent that this machine has besides.
            *python, "headroom", "agent", "--config", os.devnull, "--server", url,
            "--token-file", str(state / "agent-token"),
            "--spool", str(state / "agent-spool.sqlite"),
            "--node", socket.gethostname(),
        ),
        stop_rank=1,
        needs_ready=True,
        silent_s=2 * _SILENT_S,
    )  # fmt: skip
    chosen = {*options.services, *(["demo"] if options.demo else [])}
    return [
        service
        for service in (web, worker, housekeeper, beat, demo, agent)
        if service.name in chosen
    ]


def _web_flags(options: argparse.Namespace) -> tuple[str, ...]:
    return (
        "--host", options.host, "--port", str(options.port), "--workers", str(options.web_workers),
    )  # fmt: skip


class _Probe:
    """Asks /readyz from a thread of its own until it is answered with 200."""

    def __init__(self, host: str, port: int) -> None:
        self._address = _reachable(host), port
        self._ready = threading.Event()
        self._thread: threading.Thread | None = None
        self._last = "no answer yet"
        self._complain_at = 0.0

    def look(self) -> bool:
        """Tell whether the server has been ready; says so on stderr when it takes long."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._ask, daemon=True)
            self._complain_at = time.monotonic() + _PATIENCE_S
            self._thread.start()
        if time.monotonic() > self._complain_at and not self._ready.is_set():
            self._complain_at += _PATIENCE_S
            sys.stderr.write(f"still waiting for /readyz: {self._last}\n")
        return self._ready.is_set()

    def _ask(self) -> None:
        while not self._ready.is_set():
            connection = http.client.HTTPConnection(*self._address, timeout=5)
            try:
                connection.request("GET", "/readyz")
                answer = connection.getresponse()
                self._last = f"{answer.status} {answer.read(500).decode('utf-8', 'replace')}"
                if answer.status == http.client.OK:
                    self._ready.set()
            except (OSError, http.client.HTTPException) as error:
                self._last = str(error)
            finally:
                connection.close()
            time.sleep(_PROBE_EVERY_S)


def _watcher(servers: EmbeddedServers, output: Output) -> Callable[[], None]:
    """Return a function that watches the embedded servers; cheap enough to call all the time."""
    trim_at = 0.0
    vigil = ServerVigil(servers)

    def watch() -> None:
        nonlocal trim_at
        try:
            for name, text in vigil.look():
                output.line(name, text)
            for name in servers.ensure_running():
                output.line(name, "died; started again")
            if time.monotonic() > trim_at:
                trim_at = time.monotonic() + _TRIM_EVERY_S
                servers.trim_logs()
        except (EmbeddedError, OSError) as error:
            output.line("servers", str(error))

    return watch


def _welcome(url: str, state: Path, *, reveal: bool) -> str:
    rule = "─" * 72
    return (
        f"\n{rule}\n"
        f"  Headroom is up:  {url}\n"
        f"  {_sign_in(state / 'admin-password', reveal=reveal)}\n"
        f"  Logs are in {state / 'logs'}. Ctrl-C stops everything.\n"
        f"{rule}\n\n"
    )


def _sign_in(password: Path, *, reveal: bool) -> str:
    """Say how to log in. The password itself is shown once, and to a terminal alone.

    What else standard output may be, a file, a pipe or the journal, keeps what it gets.
    """
    if not password.exists():
        return "Sign in as before."
    if reveal and sys.stdout.isatty():
        text = password.read_text(errors="replace").strip()
        return f"Sign in as admin, password {text}  (kept in {password})"
    return f"Sign in as admin; the password is in {password}"


def _preparation(options: argparse.Namespace) -> tuple[str, ...]:
    demo = ("--demo",) if options.demo else ()
    agent = ("--machine-agent", socket.gethostname()) if "agent" in options.services else ()
    return ("prepare", "--replay", *agent, *demo)


def _emptied(folder: Path) -> Path:
    """Return the folder, emptied of files from an earlier run."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    return folder


def _reachable(host: str) -> str:
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)  # noqa: S104


def _authority(host: str) -> str:
    host = _reachable(host)
    return f"[{host}]" if ":" in host else host


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line; what makes no sense ends the process."""
    parser = argparse.ArgumentParser(
        prog="python -m config.up", description="Run all of Headroom on this machine."
    )
    default = "(default: %(default)s)"
    parser.add_argument("--host", default="127.0.0.1", help=f"address to listen on {default}")
    parser.add_argument("--port", type=int, default=8000, help=f"port to listen on {default}")
    parser.add_argument(
        "--demo", action=argparse.BooleanOptionalAction, default=True, help="run the demo fleet"
    )
    parser.add_argument(
        "--services",
        nargs="+",
        choices=_SERVICES,
        default=_SERVICES,
        metavar="SERVICE",
        help=f"services to run, of {', '.join(_SERVICES)}, where others run elsewhere on the same "
        "Postgres and Valkey (default: all)",
    )
    parser.add_argument("--web-workers", type=int, default=2, help=f"web processes {default}")
    parser.add_argument(
        "--state-dir",
        type=Path,
        default=Path(os.environ.get("HEADROOM_STATE_DIR") or REPOSITORY / ".headroom"),
        help="where data is kept (default: HEADROOM_STATE_DIR, else .headroom)",
    )
    options = parser.parse_args(arguments)
    if "web" not in options.services and ("agent" in options.services or options.demo):
        parser.error("agent and demo push to the web service here: add web to --services")
    return options


if __name__ == "__main__":
    sys.exit(main())
