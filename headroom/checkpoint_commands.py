"""``headroom checkpoints``: save, ship, restore, list, verify and collect checkpoints of a run.

What they need is imported when they run, so that help is quick.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from headroom.checkpoints import Checkpoint, Keeper, PassedOver, Store
    from headroom.checkpoints.orders import Obedience

__all__ = ["checkpoints"]

Command = TypeVar("Command", bound=Callable[..., Any])

_FOLDER = click.Path(path_type=Path, file_okay=False)
#: Exit status where something is not whole.
NOT_WHOLE = 3
_NICE = 10

_store = click.argument("store")
_run = click.option("--run", required=True, metavar="NAME", help="The training run.")
_threads = click.option(
    "--threads", type=click.IntRange(min=1), default=8, show_default=True, help="Chunks at a time."
)
_rate = click.option(
    "--rate-mbit-per-s",
    type=click.FloatRange(min=0, min_open=True),
    help="The most that goes over the link. [default: without bound]",
)
_newest = click.option(
    "--newest",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="How many of each run stay.",
)
_every = click.option(
    "--every-steps",
    type=click.IntRange(min=0),
    default=0,
    help="One in so many steps stays, too. [default: none]",
)
_check = click.option(
    "--check",
    type=click.Choice(["sent", "all", "there"]),
    default="sent",
    show_default=True,
    help="What is read back: what was sent, all of it, or nothing (verify --arrivals there).",
)


@click.group()
def checkpoints() -> None:
    """Checkpoints that say what they are, and travel: docs/how-to/keep-checkpoints.md.

    STORE is a folder, or a URL: s3://bucket/prefix, sftp://user@host/folder.
    """


@checkpoints.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False, exists=True))
@_store
@_run
@click.option("--step", type=click.IntRange(min=0), required=True, help="The last step in it.")
@click.option(
    "--about",
    "about_file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="What else is known of it, as JSON: code_revision, image_digest, data, layout, …",
)
@_threads
def save(
    folder: Path, store: str, run: str, step: int, about_file: Path | None, threads: int
) -> None:
    """Save all files of FOLDER as a checkpoint in STORE."""
    lib = _library()
    about = _about(lib, about_file, run, step)
    found = lib.save(folder, lib.Store.at(store), about, threads=threads)
    chunks = len(found.manifest.chunks())
    click.echo(f"{found.name.said}: {_size(found.manifest.bytes)} in {chunks} chunks")


@checkpoints.command()
@_store
@click.argument("target")
@_run
@_rate
@_check
@_threads
def ship(
    store: str, target: str, run: str, rate_mbit_per_s: float | None, check: str, threads: int
) -> None:
    """Bring the newest checkpoint of STORE that is whole to TARGET."""
    lib = _library()
    source, other = lib.Store.at(store), lib.Store.at(target)
    found, passed_over = lib.latest_whole(source, run, threads)
    _say_passed_over(passed_over)
    if found.name in other.names(run):
        click.echo(f"{found.name.said}: {other} has it")
        return
    done = lib.ship(
        found, source, other, pace=_pace(lib, rate_mbit_per_s), check=check, threads=threads
    )
    click.echo(
        f"{found.name.said}: {done.sent} of {done.chunks} chunks, {_size(done.sent_bytes)} for "
        f"{_size(done.raw_bytes)}"
    )


@checkpoints.command()
@_store
@click.argument("folder", type=_FOLDER)
@_run
@click.option("--step", type=click.IntRange(min=0), help="That one. [default: the newest whole]")
@click.option(
    "--allow",
    multiple=True,
    metavar="INPUT",
    help="Inputs that may be others than then: code, image, data/NAME. Later manifests tell.",
)
@_threads
def restore(
    store: str, folder: Path, run: str, step: int | None, allow: tuple[str, ...], threads: int
) -> None:
    """Restore the newest checkpoint that is whole as FOLDER, which must not be there."""
    lib = _library()
    source = lib.Store.at(store)
    name = None
    if step is not None:
        name = max((each for each in source.names(run) if each.step == step), default=None)
        if name is None:
            raise click.ClickException(f"{source} has no checkpoint of {run} at step {step}")
    found = lib.restore(source, folder, run, name=name, threads=threads, allow=allow)
    _say_passed_over(found.passed_over)
    for each in found.changes:
        click.echo(f"allowed: {each.input} was {each.before or 'none'}, is {each.after or 'none'}")
    click.echo(f"{found.checkpoint.name.said}: {_size(found.checkpoint.manifest.bytes)}")


@checkpoints.command("list")
@_store
@click.option("--run", default="", metavar="NAME", help="Of this run alone.")
@click.option("--json", "as_json", is_flag=True, help="Print manifests, without their files.")
def list_(store: str, run: str, as_json: bool) -> None:
    """List the checkpoints of STORE that count, the latest last."""
    lib = _library()
    for found in lib.Store.at(store).readable(run):
        click.echo(_as_json(found) if as_json else _line(found))


@checkpoints.command()
@_store
@click.option("--run", default="", metavar="NAME", help="Of this run alone.")
@click.option("--arrivals", is_flag=True, help="What has arrived, and have it count if whole.")
@_threads
def verify(store: str, run: str, arrivals: bool, threads: int) -> None:
    """Read all bytes of the checkpoints of STORE. Ends with 3 where one is not whole."""
    lib = _library()
    place = lib.Store.at(store)
    results = (
        lib.arrive(place, threads=threads) if arrivals else _verified(lib, place, run, threads)
    )
    is_whole = True
    for found in results:
        if isinstance(found, Exception):
            is_whole = False
            click.echo(str(found), err=True)
        else:
            click.echo(f"{found.name.said}: whole")
    if not is_whole:
        sys.exit(NOT_WHOLE)


@checkpoints.command()
@_store
@_newest
@_every
@_threads
def collect(store: str, newest: int, every_steps: int, threads: int) -> None:
    """Remove old checkpoints of STORE, and chunks that none needs. The newest whole one stays."""
    lib = _library()
    done = lib.collect(lib.Store.at(store), lib.Keep(newest, every_steps), threads=threads)
    _say_passed_over(done.passed_over)
    for run in done.unsafe:
        click.echo(f"{run}: no checkpoint is whole, so none was removed", err=True)
    if done.waits_for:
        click.echo(f"chunks stay, because of {done.waits_for}", err=True)
    click.echo(
        f"{len(done.checkpoints)} checkpoints and {done.chunks} chunks removed, {_size(done.bytes)}"
    )


@checkpoints.command()
@_store
@click.argument("target")
@_run
def lag(store: str, target: str, run: str) -> None:
    """Say how far TARGET is behind STORE."""
    lib = _library()
    found = lib.lag(lib.Store.at(store), lib.Store.at(target), run)
    steps = "nothing to resume from" if found.steps is None else f"{found.steps} steps"
    click.echo(f"{run}: {steps}, {_size(found.bytes)} behind ({found.checkpoints} checkpoints)")


@checkpoints.command()
@_store
@click.option("--to", "target", metavar="STORE", help="Keep this store up with it.")
@_rate
@click.option(
    "--site", default="", metavar="NAME", help="Where STORE is. [default: this machine's site]"
)
@click.option("--to-site", default="", metavar="NAME", help="Where the other store is.")
@_check
@_newest
@_every
@_threads
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def keep(
    store: str,
    command: tuple[str, ...],
    target: str | None,
    site: str,
    to_site: str,
    rate_mbit_per_s: float | None,
    check: str,
    newest: int,
    every_steps: int,
    threads: int,
) -> None:
    """Go on saving what loops have staged in STORE, sending it, and removing what is old.

    Others on the machine come first: it takes the processor's time that they leave. In a job of
    Headroom's it tells the server, by way of the machine's agent, which checkpoint is whole where,
    and sends no faster than restrictions leave it.

    With COMMAND it starts that, passes SIGTERM on to it, saves and sends what it has left when it
    has ended, and ends with its status:

        headroom checkpoints keep STORE --to OTHER -- python train.py
    """
    from headroom import logs
    from headroom.signals import call_on_stop

    lib = _library()
    logs.set_up()
    obedience = _obedience(rate_mbit_per_s)
    keeper = lib.Keeper(
        lib.Store.at(store),
        None if target is None else lib.Store.at(target),
        rule=lib.Keep(newest, every_steps),
        pace=_pace(lib, rate_mbit_per_s) if obedience is None else lib.Pace(obedience.rate),
        may_ship=(lambda: True) if obedience is None else obedience.may_ship,
        check=check,
        threads=threads,
        teller=_teller(lib, site, to_site),
    )
    # Before this process steps back: the command does not.
    process = _started(command) if command else None
    call_on_stop(keeper.stop.set if process is None else process.terminate)
    os.nice(_NICE)
    if process is None:
        keeper.run()
    else:
        sys.exit(_keep_beside(process, keeper))


def _started(command: Sequence[str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(command)  # noqa: S603 - the command of whoever runs us
    except OSError as error:
        raise click.ClickException(f"{command[0]}: {error.strerror}") from error


def _keep_beside(process: subprocess.Popen[bytes], keeper: Keeper) -> int:
    """Keep until the command has ended, and then what it has left; return its exit status."""

    def stop_after_it() -> None:
        process.wait()
        keeper.stop.set()

    threading.Thread(target=stop_after_it, daemon=True).start()
    try:
        keeper.run()
        keeper.close()
    finally:
        # Whatever is wrong with keeping, it does not end the command.
        code = process.wait()
    return code if code >= 0 else 128 - code


def _library() -> ModuleType:
    """Return the library, which not every machine can import."""
    try:
        from headroom import checkpoints as library
    except ModuleNotFoundError as exc:
        if (exc.name or "").partition(".")[0] == "headroom":
            raise
        raise click.ClickException(
            "headroom checkpoints needs: pip install 'headroom[checkpoints]'"
        ) from exc
    return library


def _about(lib: ModuleType, file: Path | None, run: str, step: int) -> Any:
    import msgspec

    try:
        said = {} if file is None else json.loads(file.read_bytes())
        return msgspec.convert({**said, "run": run, "step": step}, lib.About)
    except (ValueError, TypeError, msgspec.MsgspecError) as error:
        raise click.ClickException(f"{file}: {error}") from error


def _pace(lib: ModuleType, mbit_per_s: float | None) -> Any:
    return lib.Pace.of(None if mbit_per_s is None else mbit_per_s * 1e6 / 8)


def _teller(lib: ModuleType, site: str, to_site: str) -> Any:
    """Return who tells the agent of this job how its stores stand; None: this is no such job."""
    from headroom.training.reports import SOCKET, Sender, StoreReport

    path = os.environ.get(SOCKET)
    if not path:
        return None
    sender = Sender(Path(path))
    return lib.Teller(
        lambda state: sender.send(StoreReport(store=state)), site=site, target_site=to_site
    )


def _obedience(mbit_per_s: float | None) -> Obedience | None:
    """Return what this job's keeper goes by; None: this is no job that anybody tells anything."""
    from headroom.checkpoints.orders import Obedience, Orders
    from headroom.training.reports import SOCKET, Sender, ShippingReport

    orders, path = Orders.of(os.environ), os.environ.get(SOCKET)
    if orders is None or not path:
        return None
    sender = Sender(Path(path))
    own = None if mbit_per_s is None else mbit_per_s * 1e6 / 8
    return Obedience(
        orders, lambda ids: sender.send(ShippingReport(shipping=ids[:64])), own_bytes_per_s=own
    )


def _verified(
    lib: ModuleType, store: Store, run: str, threads: int
) -> Iterable[Checkpoint | Exception]:
    for name in store.names(run):
        try:
            yield store.check(name, threads)
        except (lib.Damaged, lib.NotWhole) as error:
            yield lib.Damaged(f"{name.said}: {error}")


def _say_passed_over(passed_over: Iterable[PassedOver]) -> None:
    for name, why in passed_over:
        click.echo(f"passed over {name.said}: {why}", err=True)


def _line(found: Checkpoint) -> str:
    name = found.name
    return (
        f"{name.run}  step {name.step}  start {name.epoch}  {name.at:%Y-%m-%d %H:%M:%S} UTC  "
        f"{_size(found.manifest.bytes)}  {name.digest[:12]}"
    )


def _as_json(found: Checkpoint) -> str:
    import msgspec

    said = msgspec.to_builtins(found.manifest)
    said = {key: value for key, value in said.items() if key not in ("files", "folders")}
    return json.dumps({"digest": found.name.digest, **said})


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB"
