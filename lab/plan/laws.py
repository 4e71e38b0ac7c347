"""A command for each law, made from its signature and its docstring."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections import Counter
from collections.abc import Callable
from types import ModuleType
from typing import Any

import click

from lab.plan.answers import as_json, as_text, lines_of
from lab.plan.groups import ListingGroup, WrongUse
from lab.plan.names import as_command, symbol_of
from lab.plan.options import Given, MissingError, arguments_from, options_of
from physics.errors import ImpossibleArgumentError, PhysicsError, ShapeMismatchError

__all__ = ["LawCommand", "laws_of", "module_command", "summary"]

_ROLE = re.compile(r":\w+:`~?([^`]+)`")
#: Where the first line of a docstring goes over from what a law gives to its formula.
_FORMULA = re.compile(r"(: ``|\.$|\. ).*")


class LawCommand(click.Command):
    """One law: its arguments are the options, its docstring is the help."""

    def __init__(self, module: str, name: str, law: Callable[..., Any]) -> None:
        self.law = law
        self._law_name = f"{module}.{law.__name__}"
        self._options = options_of(law)
        json_option = click.Option(
            ["--json"], is_flag=True, help="Print JSON: units are in its keys."
        )
        super().__init__(
            name,
            callback=self._run,
            params=[*(option.parameter() for option in self._options), json_option],
            short_help=summary(law),
        )

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the docstring as it stands: filled anew, its formulas would break."""
        lines = _readable(inspect.getdoc(self.law) or "").splitlines()
        formatter.write("\n" + "".join(f"  {line}".rstrip() + "\n" for line in lines))

    def _run(self, *, json: bool, **values: Given | None) -> None:
        given = {name: value for name, value in values.items() if value is not None}
        try:
            arguments = arguments_from(self._options, given)
            found = self.law(**arguments)
        except MissingError as exc:
            raise WrongUse(f"missing: {exc} (see --help)") from exc
        except PhysicsError as exc:
            raise WrongUse(self._explain(exc)) from exc
        assumed = self._assumed(arguments)
        if json:
            click.echo(self._as_json(assumed, found))
        else:
            said = {name: each.text for name, each in given.items()}
            said |= dict.fromkeys(assumed.keys() - arguments.keys(), "default")
            click.echo(self._as_text(assumed, said, found))

    def _assumed(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return all arguments in the order of the law, with the defaults of those not given."""
        return {
            option.argument.name: arguments.get(option.argument.name, option.argument.default)
            for option in self._options
        }

    def _explain(self, error: PhysicsError) -> str:
        """Return the message of an error, in the names of the options."""
        if isinstance(error, ImpossibleArgumentError):
            return f"{self._flag(error.argument)} must be {self._flags(error.requirement)}"
        if isinstance(error, ShapeMismatchError):
            lists = [(self._flag(name), shape[0]) for name, shape in error.shapes.items() if shape]
            lengths = ", ".join(f"{flag} has {length}" for flag, length in lists)
            return f"lists must be of one length: {lengths}"
        return self._flags(str(error))

    def _flags(self, text: str) -> str:
        # Only with an underscore is it surely a name: "ratio" may be just a word.
        return re.sub(r"\w+_\w+", lambda name: self._flag(name[0]), text)

    def _flag(self, argument: str) -> str:
        for option in self._options:
            if argument in (option.name, option.field):
                return option.flag
        return argument

    def _as_json(self, assumed: dict[str, Any], found: Any) -> str:
        outputs = found if dataclasses.is_dataclass(found) else {self.law.__name__: found}
        return as_json({"law": self._law_name, "inputs": assumed, "outputs": outputs})

    def _as_text(self, assumed: dict[str, Any], said: dict[str, str], found: Any) -> str:
        given = [
            dataclasses.replace(line, said=said.get(name, ""))
            for name, value in assumed.items()
            if value is not None
            for line in lines_of(name, value)
        ]
        if hasattr(found, "as_text"):  # a diagnosis knows how it is told
            return f"{as_text(given, [])}\n\n{found.as_text()}"
        name = "" if dataclasses.is_dataclass(found) else self.law.__name__
        answers = [line for line in lines_of(name, found) if line.value is not None]
        return as_text(given, answers)


def module_command(name: str, module: ModuleType) -> ListingGroup:
    """Return the command that holds the laws of a module."""
    laws = laws_of(module)
    # Laws that differ in their unit alone keep it.
    taken = Counter(map(as_command, laws))
    named = {
        as_command(law) if taken[as_command(law)] == 1 else law.replace("_", "-"): function
        for law, function in laws.items()
    }
    commands = {key: LawCommand(name, key, function) for key, function in named.items()}
    return ListingGroup(name, commands, summary(module))


def laws_of(module: ModuleType) -> dict[str, Callable[..., Any]]:
    """Return the public laws of a module by name: all its public functions."""
    public = {name: getattr(module, name) for name in module.__all__}
    return {name: each for name, each in public.items() if inspect.isfunction(each)}


def summary(documented: Any) -> str:
    """Return the result that a docstring's first line names, without its formula and unit."""
    first = _readable(_FORMULA.sub("", (inspect.getdoc(documented) or "").partition("\n")[0]))
    symbol = symbol_of(documented.__name__)
    if symbol:
        first = first.removesuffix(f", {symbol}")
    first = first.removeprefix("Return ").removeprefix("the ")
    return first[:1].upper() + first[1:]


def _readable(text: str) -> str:
    return _ROLE.sub(r"\1", text).replace("``", "")
