"""Terms of the trade with their meaning: ``{% term "headroom" %}``, a builtin."""

from __future__ import annotations

from typing import Any

from django import template
from django.template.context import Context
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import slugify

from dashboard import glossary

register = template.Library()

_SEEN = "terms"


@register.simple_tag(takes_context=True)
def term(context: Context, word: str, shown: str = "") -> SafeString:
    """Return a word, as it is or as ``shown``, whose meaning comes up under pointer, focus or tap.

    A button opens it without any script; ``static/js/terms.js`` adds the pointer and the focus. The
    ids are of the template and the term, so that they stay when a panel is swapped. Raises
    ``KeyError`` of a word that the glossary has not.
    """
    render: Any = context.render_context
    seen: dict[str, int] = render.setdefault(_SEEN, {})
    seen[word] = seen.get(word, 0) + 1
    origin = context.template.name if context.template else ""
    key = slugify(f"term {str(origin).replace('/', ' ')} {word} {seen[word]}")
    return format_html(
        '<button type="button" class="term" popovertarget="{0}" aria-describedby="{0}">{1}</button>'
        '<span class="meaning" popover role="tooltip" id="{0}">{2}</span>',
        key,
        shown or word,
        glossary.meaning(word),
    )
