"""The options of a law: one for each argument, named like it, but without its unit.

An argument that is a dataclass, such as a table of efficiencies, has an option for each of its
fields: ``--table-sizes`` and ``--table-efficiencies``.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

import click

from lab.plan.names import as_command, symbol_of
from lab.plan.quantities import NotInUnitError, UnreadableError, read_list, read_words
from physics.law import Argument, Bound, arguments_of

__all__ = ["EXAMPLES", "Given", "MissingError", "Option", "arguments_from", "options_of"]

#: What a value of a unit may look like. One whose unit is not here is shown as a 1 with its unit.
EXAMPLES = {
    "B": "14GB",
    "B/s": "50GB/s or 400Gbit/s",
    "bit/s": "400Gbit/s",
    "FLOP/s": "989TFLOP/s",
    "W": "700W",
    "kW": "40kW",
    "kWh": "35kWh",
    "s": "5us or 24h",
    "h": "24h or 30d",
    "1/s": "120/s",
    "°C": "25C",
    "°C/W": "0.05C/W",
    "g/kWh": "350g/kWh",
    "USD/kWh": "$0.08/kWh",
}
_ABSOLUTE_ZERO_C = -273.15


class MissingError(ValueError):
    """Options that have to be given and are not."""


@dataclasses.dataclass(frozen=True)
class Given:
    """The value of an option: as it was written, and as it is passed to the law."""

    text: str
    value: Any


@dataclasses.dataclass(frozen=True)
class Option:
    """An option, and the argument of a law that it fills, or the field of that argument."""

    argument: Argument
    hint: Any
    bound: Bound | None
    #: Where the argument is a dataclass: the name of one of its fields, and that dataclass.
    field: str = ""
    record: Any = None

    @property
    def name(self) -> str:
        """The name with its unit; click hands the value over under it."""
        return f"{self.argument.name}_{self.field}" if self.field else self.argument.name

    @property
    def flag(self) -> str:
        return f"--{as_command(self.name)}"

    @property
    def choices(self) -> Mapping[str, Any]:
        """The words that may be written, and the value of each; empty where they are not fixed."""
        return _choices(self.hint)

    def parameter(self) -> click.Option:
        """Return the option for click. A missing one is reported when all options are read."""
        kind = self._kind()
        return click.Option(
            [self.flag, self.name], type=kind, metavar=kind.metavar, help=self._help()
        )

    def _kind(self) -> _Kind:
        if self.bound:
            kind = _OneNumber if self.hint is float else _Numbers
            return kind(symbol_of(self.name), self.bound)
        if self.hint is str:
            return _Word()
        return _Choice(self.choices) if self.choices else _Words()

    def _help(self) -> str:
        parts = [self.bound.requirement] if self.bound else []
        if self._is_list():
            parts.append("a list with commas, or @FILE")
        symbol = symbol_of(self.name) if self.bound else None
        if symbol:
            parts.append(f"such as {_example(symbol)}")
        return "  ".join(filter(None, [", ".join(parts), self._need()]))

    def _is_list(self) -> bool:
        return self.bound.series if self.bound else isinstance(self._kind(), _Words)

    def _need(self) -> str:
        if self.argument.required:
            return "" if self.field else "[required]"
        default = self.argument.default
        default = getattr(default, self.field) if self.field else default
        if isinstance(default, tuple):
            default = ", ".join(map(str, default))
        if isinstance(default, bool):
            default = "yes" if default else "no"
        return "" if default is None else f"[default: {default}]"


class _Kind(click.ParamType):  # type: ignore[type-arg]  # not generic before click 8.3
    """How the text of an option is read."""

    metavar: str

    def read(self, text: str) -> Any:
        """Return the value for the law, or raise :class:`UnreadableError`."""
        raise NotImplementedError

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Given:
        try:
            return Given(value, self.read(value))
        except UnreadableError as exc:
            self.fail(str(exc), param, ctx)


class _Numbers(_Kind):
    """Numbers in one unit: a float, or a list of floats where the text has several."""

    name = "numbers"

    def __init__(self, symbol: str | None, bound: Bound) -> None:
        self._symbol = symbol
        self._series = bound.series
        # Only what may not be under absolute zero is a temperature; else it is a difference of two.
        self._difference = bound.low != _ABSOLUTE_ZERO_C
        self.metavar = symbol or "NUMBER"

    def read(self, text: str) -> float | list[float]:
        try:
            numbers = read_list(text, self._symbol, difference=self._difference)
        except NotInUnitError as exc:
            example = f", such as {_example(self._symbol)}" if self._symbol else ""
            raise UnreadableError(f"{exc}{example}") from exc
        return numbers if self._series or len(numbers) > 1 else numbers[0]


class _OneNumber(_Numbers):
    """A number of which a law takes no several."""

    def read(self, text: str) -> float:
        number = super().read(text)
        if isinstance(number, list):
            raise UnreadableError("one number is wanted, not a list")
        return number


class _Choice(_Kind):
    """One of the words that the law knows."""

    name = "choice"

    def __init__(self, choices: Mapping[str, Any]) -> None:
        self._choices = choices
        self.metavar = f"[{'|'.join(choices)}]"

    def read(self, text: str) -> Any:
        if text not in self._choices:
            raise UnreadableError(f"{text!r} is not one of {', '.join(self._choices)}")
        return self._choices[text]


class _Word(_Kind):
    """A name that the law looks up."""

    name = "word"
    metavar = "NAME"

    def read(self, text: str) -> str:
        return text


class _Words(_Kind):
    """Words with commas between them, or of a file."""

    name = "words"
    metavar = "WORDS"

    def read(self, text: str) -> list[str]:
        return read_words(text)


def options_of(law: Callable[..., Any]) -> list[Option]:
    """Return the options of a law in the order of its arguments."""
    hints = get_type_hints(inspect.unwrap(law), include_extras=True)
    options: list[Option] = []
    for name, argument in arguments_of(law).items():
        hint = hints[name]
        if dataclasses.is_dataclass(hint):
            options.extend(_options_of_fields(argument, hint))
        else:
            options.append(Option(argument, hint, argument.bound))
    return options


def arguments_from(options: list[Option], given: Mapping[str, Given]) -> dict[str, Any]:
    """Return the arguments that options give. The others have a default.

    Raises :class:`MissingError` with all that would have to be there.
    """
    values: dict[str, Any] = {}
    records: dict[str, dict[str, Any]] = defaultdict(dict)
    for option in options:
        if option.name in given and option.field:
            records[option.argument.name][option.field] = given[option.name].value
        elif option.name in given:
            values[option.argument.name] = given[option.name].value
    _refuse_missing(options, values.keys() | records.keys())
    arguments = {option.argument.name: option for option in options}
    return values | {name: _record(arguments[name], each) for name, each in records.items()}


def _refuse_missing(options: list[Option], arguments: set[str]) -> None:
    lacking = [o for o in options if o.argument.required and o.argument.name not in arguments]
    if lacking:
        raise MissingError(", ".join(option.flag for option in lacking))


def _record(option: Option, fields: dict[str, Any]) -> Any:
    """Return the dataclass that ``fields`` say; the default of the argument fills up the rest."""
    values = {name: tuple(v) if isinstance(v, list) else v for name, v in fields.items()}
    # A source that is stated for the default is not that of other numbers.
    texts = [name for name, hint in get_type_hints(option.record).items() if hint is str]
    values |= dict.fromkeys(texts, "the command line")
    if option.argument.required:
        return option.record(**values)
    return dataclasses.replace(option.argument.default, **values)


def _options_of_fields(argument: Argument, record: Any) -> list[Option]:
    """Return an option for each field that is a number or a tuple of numbers."""
    options = []
    for field, hint in get_type_hints(record).items():
        is_series = get_origin(hint) is tuple
        if hint is float or is_series:
            bound = Bound("numbers" if is_series else "a number", series=is_series)
            options.append(Option(argument, hint, bound, field, record))
    return options


def _example(symbol: str) -> str:
    return EXAMPLES.get(symbol, f"1 {symbol}")


def _choices(hint: Any) -> dict[str, Any]:
    """Return the values that a ``bool`` or a ``Literal`` allows, also of ``Literal[…] | None``."""
    if hint is bool:
        return {"yes": True, "no": False}
    for each in (hint, *get_args(hint)):
        if get_origin(each) is Literal:
            return {word: word for word in get_args(each)}
    return {}
