"""The glossary: one source for pages and documents."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.template import Context, Template

from dashboard import glossary

ROOT = Path(__file__).parents[3]
USED = re.compile(r"""{% term "([^"]+)\"""")


def test_every_term_that_a_page_uses_is_in_the_glossary() -> None:
    used = {
        word
        for path in (ROOT / "templates").rglob("*.html")
        for word in USED.findall(path.read_text())
    }
    assert len(used) > 15
    assert used <= set(glossary.terms())


@pytest.mark.parametrize("word", list(glossary.terms()))
def test_a_meaning_is_plain_text_and_a_sentence(word: str) -> None:
    text = glossary.meaning(word)
    assert not re.search(r"[`\[\]|]|\.md|\b[Ss]ee\.$", text)
    assert re.match(r"[^a-z]", text)
    assert text.endswith(".")
    assert not text.endswith("..")


def test_a_term_that_is_unknown_fails_where_it_is_written() -> None:
    with pytest.raises(KeyError):
        Template('{% term "no such" %}').render(Context())


def test_a_term_that_stands_twice_has_two_ids_and_each_opens_its_own_meaning() -> None:
    html = Template('{% term "gang" %}{% term "gang" "gangs" %}').render(Context())
    ids = re.findall(r' id="([^"]+)"', html)
    assert len(set(ids)) == 2
    assert re.findall(r'popovertarget="([^"]+)"', html) == ids
    assert re.findall(r'aria-describedby="([^"]+)"', html) == ids
    assert ">gangs</button>" in html


def test_the_reference_page_has_all_terms() -> None:
    page = (ROOT / "docs/reference/glossary.md").read_text()
    assert page == glossary.page()
