"""What there is to ask a server: its routes, the links and forms of its pages, its operations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import parse_qsl, urljoin, urlsplit

import yaml
from django.urls import URLPattern, URLResolver, get_resolver

from tests.builders.inventory import make_inventory
from tests.builders.jobs import make_spec
from tests.fuzz.schemas import Described
from tests.fuzz.sending import Sender, Sent

_REPOSITORY = Path(__file__).resolve().parents[2]
#: What would end the session of whoever crawls.
_NOT_CRAWLED = ("/logout", "/admin/logout")

#: Names that :func:`tests.builders.lively.make_lively` gives, and words of the API.
WORDS = [
    "oslo", "bergen", "oslo/A01", "oslo/B02", "A01", "oslo-a01-n1", "oslo-a01-n1/0", "small-fleet",
    "feed-a1", "utility", "hall-1", "H100", "host", "rack-hot", "cool-down", "training-begins",
    "llama-ft-12", "vit-sweep-3", "vision", "train", "promote", "high-density-training", "rack",
    "site", "node", "gpu", "link", "power_domain", "zone", "drain", "power_cap_w",
    "no_new_launches",
    "severity=critical", 'rule="rack-hot"', "active", "draft", "open", "1", "2", "10.0.0.0/8",
    "https://example.org/hook", "webhook", "email", "cool-down-2", "a sentence",
]  # fmt: skip
#: Folders of documents, and where each kind of them is posted.
_DOCUMENTS = (
    ("policies/rules/builtin", ("/api/v1/rules", "/api/v1/rule-check")),
    ("policies/playbooks/builtin", ("/api/v1/playbooks",)),
    ("admission/slos/builtin", ("/api/v1/slos", "/api/v1/slo-check")),
)
_JOBS = ("/api/v1/jobs", "/api/v1/jobs?dry_run=1")
_FLEETS = ("/api/v1/fleet/plan", "/api/v1/fleet/apply")


@dataclass(frozen=True)
class Form:
    """A form of a page: where it goes, and what it sends when nobody touches it."""

    action: str
    method: str
    fields: tuple[tuple[str, str], ...]


@dataclass
class Corpus:
    """All that requests are made of."""

    described: Described
    #: "racks/<int:rack_id>/" of each route
    routes: list[str]
    #: of links and scripts: path with query
    targets: list[str] = field(default_factory=list)
    forms: list[Form] = field(default_factory=list)
    #: paths that a kind of document is posted to, and its text
    documents: list[tuple[tuple[str, ...], str]] = field(default_factory=list)
    #: names of parameters that some link has
    parameters: list[str] = field(default_factory=list)

    def path(self, route: str, rng: Random, odd: Any) -> str:
        """Return an address of a route; ``odd`` makes a value that may be anything."""

        def fill(match: re.Match[str]) -> str:
            if rng.random() < 0.25:
                return str(odd(rng))
            if "int:" in match[0] or "pk" in match[0] or "id" in match[0]:
                return str(rng.randrange(1, 25))
            return rng.choice(WORDS)

        filled = re.sub(r"\(\?P<\w+>[^()]*\)|<(?:\w+:)?\w+>", fill, route)
        return "/" + re.sub(r"\^|\$|\\Z|\\|\?", "", filled)


class _Page(HTMLParser):
    """Collects addresses and forms of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.forms: list[tuple[str, str, list[tuple[str, str]]]] = []
        self._select = ""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.addresses += [
            value
            for name, value in given.items()
            if name in ("href", "hx-get", "action")
            or (name.startswith("data-") and "/" in value[:1])
        ]
        if tag == "form" or "hx-post" in given:
            action = given.get("action") or given.get("hx-post", "")
            method = "post" if "hx-post" in given else given.get("method", "get").lower()
            self.forms.append((action, method, []))
        elif tag == "select":
            self._select = given.get("name", "")
        elif tag == "option" and self._select:
            self._field(self._select, given.get("value", ""))
        elif tag in ("input", "textarea", "button"):
            self._field(given.get("name", ""), given.get("value", ""))

    def handle_endtag(self, tag: str) -> None:
        if tag == "select":
            self._select = ""

    def _field(self, name: str, value: str) -> None:
        if name and self.forms:
            self.forms[-1][2].append((name, value))


def gather(url: str, cookie: str, document: dict[str, Any], *, most_pages: int = 250) -> Corpus:
    """Return what is found by the URL conf, by the description, and by a walk over the pages."""
    corpus = Corpus(Described(document, WORDS), sorted(set(_routes(get_resolver()))))
    _crawl(corpus, Sender(url), cookie, most_pages)
    for folder, paths in _DOCUMENTS:
        for path in sorted((_REPOSITORY / folder).glob("*.yaml")):
            corpus.documents.append((paths, path.read_text()))
    job = make_spec("fuzzed", {"train": (), "promote": ("train",)}, 8)
    corpus.documents.append((_JOBS, yaml.safe_dump(job)))
    corpus.documents.append((_FLEETS, make_inventory(gpus=16)))
    return corpus


def openapi() -> dict[str, Any]:
    """Return the description of the REST API, as the documents have it."""
    found: dict[str, Any] = yaml.load(
        (_REPOSITORY / "docs/reference/openapi.yaml").read_text(), Loader=yaml.CSafeLoader
    )
    return found


def _routes(resolver: URLResolver, prefix: str = "") -> Iterator[str]:
    for entry in resolver.url_patterns:
        route = prefix + str(entry.pattern)
        if isinstance(entry, URLResolver):
            yield from _routes(entry, route)
        elif isinstance(entry, URLPattern):
            yield route


def _crawl(corpus: Corpus, sender: Sender, cookie: str, most_pages: int) -> None:
    waiting = ["/", *("/" + route for route in corpus.routes if not re.search(r"[<(^]", route))]
    shapes: dict[str, int] = {}
    seen: set[str] = set()
    parameters: set[str] = set()
    while waiting and len(seen) < most_pages:
        target = waiting.pop(0)
        # Of pages of one kind a few are enough.
        shape = re.sub(r"\d+|=[^&]*", "", target)
        if target in seen or shapes.get(shape, 0) >= 2 or target.startswith(_NOT_CRAWLED):
            continue
        seen.add(target)
        shapes[shape] = shapes.get(shape, 0) + 1
        got = sender.send(Sent("GET", target, (("Cookie", cookie),)))
        if got.status != 200 or "html" not in got.headers.get("content-type", ""):
            continue
        page = _Page()
        page.feed(got.body.decode("utf-8", "replace"))
        for address in page.addresses:
            if (found := _here(target, address)) and not found.startswith("/static/"):
                waiting.append(found)
                parameters.update(name for name, _ in parse_qsl(urlsplit(found).query))
        for action, method, fields in page.forms:
            if (found := _here(target, action)) and not found.startswith(_NOT_CRAWLED):
                corpus.forms.append(Form(found, method, tuple(fields)))
                parameters.update(name for name, _ in fields)
    sender.close()
    corpus.targets = sorted(seen)
    corpus.forms = sorted(set(corpus.forms), key=str)
    corpus.parameters = sorted(parameters)


def _here(base: str, address: str) -> str:
    """Return path and query of an address on this server; empty for one elsewhere."""
    parts = urlsplit(urljoin(base, address))
    if parts.scheme or parts.netloc or not parts.path.startswith("/"):
        return ""
    return parts.path + (f"?{parts.query}" if parts.query else "")
