"""Parts that the commands of ``headroom plan`` share."""

from __future__ import annotations

from collections.abc import Mapping

import click

__all__ = ["ListingGroup", "WrongUse"]


class WrongUse(click.ClickException):
    """The command cannot be run like this: one line, status 2."""

    exit_code = 2


class ListingGroup(click.Group):
    """A group that lists its commands when none is named."""

    def __init__(self, name: str, commands: Mapping[str, click.Command], text: str) -> None:
        super().__init__(
            name, dict(commands), help=text, invoke_without_command=True, callback=self._list
        )

    @staticmethod
    @click.pass_context
    def _list(ctx: click.Context) -> None:
        if ctx.invoked_subcommand is None:
            click.echo(ctx.get_help())
