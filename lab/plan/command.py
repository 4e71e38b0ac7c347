"""The command ``headroom plan``. Its laws are imported when one is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from lab.plan.groups import WrongUse

__all__ = ["plan"]

#: Libraries that the laws need, and a training machine need not have.
_EXTRA = {"numpy", "pint", "scipy"}


class _Plan(click.Group):
    """Makes its commands from the laws, which need NumPy: nobody else is to load that."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        from lab.plan import commands

        return list(commands.NAMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        from lab.plan import commands

        return commands.command_of(cmd_name)

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with _in_one_line():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> object:
        with _in_one_line():
            return super().invoke(ctx)


@contextmanager
def _in_one_line() -> Iterator[None]:
    """Report a wrong use of a command in one line, without its usage."""
    try:
        yield
    except click.UsageError as exc:
        raise WrongUse(exc.format_message()) from exc
    except ModuleNotFoundError as exc:
        if (exc.name or "").partition(".")[0] not in _EXTRA:
            raise
        raise click.ClickException("headroom plan needs: pip install 'headroom[plan]'") from exc


@click.group(cls=_Plan, invoke_without_command=True)
@click.pass_context
def plan(ctx: click.Context) -> None:
    """Calculate with the laws of a fleet: communication, scaling, failures, power, heat.

    Values are written with their units: --link 400Gbit/s --power 700W. Commas list several, and
    each gets a row of the answer.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
