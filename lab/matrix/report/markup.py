"""Elements of HTML and SVG as values. Text that is not markup is escaped."""

from __future__ import annotations

from html import escape

__all__ = ["Child", "Markup", "el", "joined"]


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


#: None is nothing, so that a part can be left out in place.
Child = str | Markup | None
Value = str | int | float | bool | None

_VOID = {"meta", "br", "link", "input"}


def joined(*children: Child) -> Markup:
    """Return ``children`` one after the other, escaped where they are not markup."""
    return Markup("".join(_text(child) for child in children if child is not None))


def el(tag: str, /, *children: Child, **attributes: Value) -> Markup:
    """Return one element.

    ``class_`` is ``class``, and other underscores are dashes. Attributes that are None or False are
    left out; True is an attribute without a value.
    """
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    if tag in _VOID:
        return Markup(f"<{tag}{written}>")
    return Markup(f"<{tag}{written}>{joined(*children)}</{tag}>")


def _text(child: str) -> str:
    return str(child) if isinstance(child, Markup) else escape(child, quote=False)


def _attribute(key: str, value: Value) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'
