"""``python -m headroom.training run``: starts the ranks of a loop, and again when one dies."""

from __future__ import annotations

import importlib
import os
import runpy
import sys
import threading
from pathlib import Path

import click

from headroom import logs
from headroom.training.restarting import run as run_ranks

__all__ = ["main"]

#: Imported before ranks are forked. DDP and optimizers import the last as they are made: 1.5 s of
#: each rank's CPU.
_WARM = ("torch", "torch.distributed", "torch.nn.parallel", "torch._dynamo")


@click.group()
def main() -> None:
    """Training loops: docs/reference/training.md."""


@main.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--ranks", type=click.IntRange(min=1), required=True, help="How many processes.")
@click.option(
    "--max-restarts",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    help="After so many a rank that fails ends all for good.",
)
@click.option(
    "--import",
    "imports",
    multiple=True,
    metavar="MODULE",
    help="Import it once, before ranks are forked. It must not use a GPU or start threads.",
)
@click.option("-m", "is_module", is_flag=True, help="SCRIPT is the name of a module.")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(
    ranks: int,
    max_restarts: int,
    imports: tuple[str, ...],
    is_module: bool,
    script: str,
    arguments: tuple[str, ...],
) -> None:
    """Run SCRIPT in several processes of this machine that start again together when one dies.

    They find the environment that torchrun would give them. SCRIPT resumes from its own checkpoint.
    """
    logs.set_up()
    if ranks > 1:
        # PyTorch reads it as it is imported; torchrun does the same.
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path.cwd() if is_module else Path(script).resolve().parent)
    for name in (*_WARM, *imports):
        importlib.import_module(name)
    if threading.active_count() > 1:
        raise click.ClickException(
            "what was imported has started threads, which ranks would lack: leave it to the ranks"
        )

    def loop() -> None:
        if is_module:
            runpy.run_module(script, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(script, run_name="__main__")

    sys.exit(run_ranks(loop, ranks, max_restarts=max_restarts))


if __name__ == "__main__":
    main()
