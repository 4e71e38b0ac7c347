"""Tables with their files and columns: ``{% table "waiting" columns=True %}…{% endtable %}``.

With ``titled="waiting-title"``, the id of a heading, in a box called so that scrolls where the
table is too wide. A builtin: no template has to load it. ``static/css/headroom.css`` hides columns
by ``hide-1`` and so on, and in a narrow window shows each row of a table of several columns as a
block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import parse_qsl, urlsplit

from django import template
from django.template.base import FilterExpression, NodeList, Parser, Token, token_kwargs
from django.template.context import Context
from django.template.loader import render_to_string
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from dashboard import exports, tables

register = template.Library()

#: As many columns as the style sheet can hide.
_MOST_COLUMNS = 16
#: So many columns stand side by side on a phone.
_ABREAST = 2
_BOX = '<div class="scroll" tabindex="0" role="region" aria-labelledby="{}" id="{}-scroll">{}</div>'


class TableNode(template.Node):
    """A table of a page: rendered, kept for its file where one is made, with its links."""

    def __init__(
        self, name: FilterExpression, given: Mapping[str, FilterExpression], nodelist: NodeList
    ) -> None:
        self._name = name
        self._columns = given.get("columns")
        self._titled = given.get("titled")
        self.nodelist = nodelist

    def render(self, context: Context) -> SafeString:
        """Return the table and, below it, its files and the choice of its columns."""
        html: str = self.nodelist.render(context)
        name = str(self._name.resolve(context))
        url = str(context.get("poll_url") or "") or exports.current_address()
        titles, chosen, hidden = tables.titles(html), list[str](), list[int]()
        if self._columns is not None and self._columns.resolve(context):
            chosen = titles[:_MOST_COLUMNS]
            hidden = _hidden(url, name, chosen)
        exports.capture(name, html, hidden)
        if len(titles) > _ABREAST:
            html = tables.as_cards(html, titles)
        if hidden:
            classes = " ".join(f"hide-{at + 1}" for at in hidden)
            html = html.replace('class="', f'class="{classes} ', 1)
        whole = mark_safe(html + _tools(url, name, chosen, hidden))  # noqa: S308 - rendered templates
        if self._titled is None:
            return whole
        title = str(self._titled.resolve(context))
        return format_html(_BOX, title, title.removesuffix("-title"), whole)


def _hidden(url: str, name: str, titles: Sequence[str]) -> list[int]:
    """Return the places, from 0, of the columns that an address hides; never all of them."""
    query = parse_qsl(urlsplit(url).query)
    asked = {each for param, each in query if param == exports.HIDE}
    found = [at for at, title in enumerate(titles) if f"{name}.{tables.slug(title)}" in asked]
    return found if len(found) < len(titles) else []


def _tools(url: str, name: str, titles: Sequence[str], hidden: Sequence[int]) -> str:
    columns = [
        (f"{name}.{tables.slug(title)}", title, at in hidden)
        for at, title in enumerate(titles)
        if title
    ]
    mine = {value for value, _, _ in columns}
    query = parse_qsl(urlsplit(exports.address(url)).query, keep_blank_values=True)
    return render_to_string(
        "inc/table_tools.html",
        {
            "name": name,
            "what": name.replace("-", " "),
            "files": [
                (form.upper(), exports.address(url, [("table", name), ("format", form)]))
                for form in exports.FORMATS
            ],
            "columns": columns,
            "hidden_count": len(hidden),
            "kept": [(param, each) for param, each in query if each not in mine],
        },
    )


@register.tag("table")
def do_table(parser: Parser, token: Token) -> TableNode:
    """Parse ``{% table NAME [titled=ID] [columns=True] %}``."""
    bits = token.split_contents()[1:]
    given = token_kwargs(bits[1:], parser)
    if not bits or set(given) - {"columns", "titled"} or len(given) != len(bits) - 1:
        raise template.TemplateSyntaxError(
            'write {% table "name" %}, with titled="id-of-heading" or columns=True behind the name'
        )
    nodelist = parser.parse(("endtable",))
    parser.delete_first_token()
    return TableNode(parser.compile_filter(bits[0]), given, nodelist)


@register.simple_tag
def kept_columns() -> SafeString:
    """Return what the address hides as hidden fields: forms of filters keep it by them."""
    return format_html_join("", '<input type="hidden" name="{}" value="{}">', exports.hides())


__all__ = ["TableNode", "do_table", "kept_columns"]
