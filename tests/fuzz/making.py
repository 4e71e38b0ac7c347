"""Request *n* of a seed: the same each time, on the same corpus."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
import yaml
import zstandard

from tests.builders.batches import make_batch
from tests.builders.otlp import as_protobuf, gauge, make_request, point
from tests.builders.remote_write import request_1, request_2, snappy
from tests.fuzz import values
from tests.fuzz.corpus import WORDS, Corpus
from tests.fuzz.sending import Sent

Headers = tuple[tuple[str, str], ...]

CSRF = "c" * 32
_JSON = ("Content-Type", "application/json")
_FORM = ("Content-Type", "application/x-www-form-urlencoded")
_METHODS = (
    "GET",
    "HEAD",
    "OPTIONS",
    "TRACE",
    "POST",
    "PUT",
    "PATCH",
    "DELETE",
    "PROPFIND",
    "get",
    "FOO",
)
#: Who asks, and how often.
_WHO = (
    ("admin",) * 9
    + ("operator",) * 3
    + ("ml_user",) * 4
    + ("viewer",) * 2
    + ("agent",) * 2
    + ("nobody",)
)
#: So much of what is made before the end leaves what it is about alone: else it is soon gone.
_KEEPS = 0.9


@dataclass(frozen=True)
class Identity:
    """What somebody shows: a token, and the cookie of a session. Either may be empty."""

    token: str = ""
    cookie: str = ""

    def headers(self, *, by_session: bool) -> Headers:
        if by_session and self.cookie:
            return (("Cookie", f"{self.cookie}; csrftoken={CSRF}"), ("X-CSRFToken", CSRF))
        return (("Authorization", f"Bearer {self.token}"),) if self.token else ()


@dataclass(frozen=True)
class Maker:
    """Makes requests of a seed. ``count`` says how many there will be."""

    corpus: Corpus
    who: Mapping[str, Identity]
    seed: int
    count: int

    def make(self, number: int) -> Sent:
        rng = Random(f"{self.seed}/{number}")
        kind, ways = rng.choices(list(_KINDS.items()), weights=_WEIGHTS)[0]
        who = rng.choice(_WHO)
        made = ways(self, rng, who)
        if number < self.count * _KEEPS and _destroys(made):
            made = Sent("OPTIONS", made.target, made.headers)
        return Sent(made.method, made.target, made.headers, made.body, who, kind)

    def headers(self, who: str, *, by_session: bool) -> Headers:
        return self.who[who].headers(by_session=by_session) if who in self.who else ()


def _destroys(made: Sent) -> bool:
    """Say whether a request may take away what all others are about."""
    path = made.target.partition("?")[0]
    return (
        (made.method == "DELETE" and path.startswith("/api/v1/"))
        or (made.method == "POST" and path.startswith("/admin/") and path.endswith("/delete/"))
        # Roles and sessions of those who ask.
        or (made.method == "POST" and path.startswith("/users/") and path != "/users/new/")
        or (path == "/api/v1/fleet/apply" and "prune_sites" in made.target)
    )


# --- The REST API --------------------------------------------------------------------------------


def _operation(maker: Maker, rng: Random, who: str) -> Sent:
    method, path, described = rng.choice(maker.corpus.described.operations)
    query: list[tuple[str, str]] = []
    for each in described.get("parameters", ()):
        value = maker.corpus.described.parameter(each, rng)
        if each["in"] == "path":
            if rng.random() < 0.7:
                is_number = each["schema"].get("type") == "integer"
                value = str(rng.randrange(1, 25)) if is_number else rng.choice(WORDS)
            path = path.replace(f"{{{each['name']}}}", _quoted(value))
        elif each["in"] == "query" and rng.random() < 0.4:
            query.append((each["name"], value))
    headers = maker.headers(who, by_session=rng.random() < 0.3)
    body = b""
    if forms := described.get("requestBody", {}).get("content"):
        form = rng.choice(sorted(forms))
        body = _body(maker, forms[form].get("schema", {}), form, rng)
        headers += (("Content-Type", form),)
    return Sent(method.upper(), _with_query(path, query), headers, body)


def _body(maker: Maker, schema: Any, form: str, rng: Random) -> bytes:
    if rng.random() < 0.04:
        return values.deep(rng)
    value = maker.corpus.described.value(schema, rng)
    if "msgpack" in form:
        return _packed(value)
    body = json.dumps(value).encode()
    return values.cut(body, rng) if rng.random() < 0.05 else body


def _packed(value: Any) -> bytes:
    try:
        return msgspec.msgpack.encode(value)
    except (OverflowError, UnicodeEncodeError):  # what MessagePack does not have
        return b"\xc1"


def _document(maker: Maker, rng: Random, who: str) -> Sent:
    paths, text = rng.choice(maker.corpus.documents)
    headers = maker.headers(who, by_session=rng.random() < 0.3)
    way = rng.random()
    if way < 0.55:
        value = values.mutated(yaml.load(text, Loader=yaml.CSafeLoader), rng)
        body, form = json.dumps(value, default=str).encode(), rng.choice(("json", "yaml"))
    elif way < 0.9:
        body, form = values.cut(text.encode(), rng), "yaml"
    else:
        body, form = values.deep(rng), rng.choice(("json", "yaml"))
    return Sent(
        "POST", rng.choice(paths), (*headers, ("Content-Type", f"application/{form}")), body
    )


# --- Pages ---------------------------------------------------------------------------------------


def _page(maker: Maker, rng: Random, who: str) -> Sent:
    """Get a page, with parameters that it knows and others."""
    path, _, query = rng.choice(maker.corpus.targets).partition("?")
    if rng.random() < 0.4:
        path = _quoted(maker.corpus.path(rng.choice(maker.corpus.routes), rng, values.text), "/")
    pairs = [(name, values.text(rng)) for name in _some(maker.corpus.parameters, rng)]
    made = _with_query(path, pairs)
    if query and rng.random() < 0.5:
        made += ("&" if pairs else "?") + query
    headers = maker.headers(who, by_session=True)
    if rng.random() < 0.15:
        headers += ((rng.choice(_HEADERS), values.text(rng).replace("\r", "").replace("\n", "")),)
    return Sent("GET", made, tuple((n, _header_value(v)) for n, v in headers))


_HEADERS = (
    "If-None-Match", "Accept", "Accept-Encoding", "HX-Request", "HX-Target", "HX-Current-URL",
    "Range",
    "X-Forwarded-For", "X-Request-ID", "If-Modified-Since", "Accept-Language", "Cookie", "Referer",
    "X-Forwarded-Proto", "Content-Type", "User-Agent", "Idempotency-Key", "Authorization",
)  # fmt: skip


def _header_value(value: str) -> str:
    """Return a header's value without what no server would take as one."""
    return "".join(each for each in value if each >= " " and each != "\x7f")


def _form(maker: Maker, rng: Random, who: str) -> Sent:
    """Fill in a form of some page: as it stands, empty, or with garbage."""
    form = rng.choice(maker.corpus.forms)
    way = rng.random()
    pairs = [("csrfmiddlewaretoken", CSRF)]
    for name, value in form.fields:
        if name == "csrfmiddlewaretoken" or way < 0.1:
            continue
        if rng.random() < 0.35:
            value = values.text(rng)
        if rng.random() < 0.9:
            pairs.append((name, value))
    headers = maker.headers(who, by_session=True)
    if form.method == "get":
        return Sent("GET", _with_query(form.action.partition("?")[0], pairs[1:]), headers)
    form_type, body = _encoded(pairs, rng)
    return Sent("POST", form.action, (*headers, ("Content-Type", form_type)), body)


def _encoded(pairs: list[tuple[str, str]], rng: Random) -> tuple[str, bytes]:
    if rng.random() < 0.8:
        return _FORM[1], urlencode(pairs, errors="surrogatepass").encode()
    parts = b""
    for name, value in pairs:
        named = name if rng.random() < 0.9 else name + '"; filename="' + values.text(rng)
        parts += f'--x\r\nContent-Disposition: form-data; name="{named}"\r\n\r\n{value}\r\n'.encode(
            "utf-8", "surrogatepass"
        )
    return "multipart/form-data; boundary=x", parts + b"--x--\r\n"


def _login(maker: Maker, rng: Random, who: str) -> Sent:
    pairs = [
        ("csrfmiddlewaretoken", CSRF), ("username", values.text(rng)),
        ("password", values.text(rng)), ("next", values.text(rng)),
    ]  # fmt: skip
    body = urlencode([each for each in pairs if rng.random() < 0.95], errors="surrogatepass")
    headers = (("Cookie", f"csrftoken={CSRF}"), _FORM)
    return Sent("POST", rng.choice(("/login/", "/login/?next=/account/")), headers, body.encode())


# --- Ways in -------------------------------------------------------------------------------------


def _way_in(maker: Maker, rng: Random, who: str) -> Sent:
    agent = maker.headers("agent" if rng.random() < 0.9 else who, by_session=False)
    path, form, encoding, body = rng.choice(_WAYS)(rng)
    if rng.random() < 0.1:
        encoding = rng.choice(("gzip", "zstd", "snappy", "br", ""))
    given = (("Content-Type", form), *((("Content-Encoding", encoding),) if encoding else ()))
    return Sent("POST", path, (*agent, *given), body)


def _batch(rng: Random) -> tuple[str, str, str, bytes]:
    document: Any = msgspec.to_builtins(
        make_batch("small-fleet", "oslo-a01-n1", rng.randrange(1, 2**40), gpus=2)
    )
    node = document["nodes"][0]
    node["xids"] = rng.choice(({"xid": [], "ts": []}, {"xid": [79], "ts": [1.7e9], "text": ["x"]}))
    node["storage"] = {"ts": [1.7e9], "mount": ["/"], "fsync_s": [0.1]}
    document["jobs"] = {"ts": [1.7e9], "job": ["llama-ft-12"], "step": [4], "loss": [0.2]}
    for _ in range(rng.randrange(3)):
        document = values.mutated(document, rng)
    if rng.random() < 0.5:
        body, form = json.dumps(document).encode(), "application/json"
    else:
        body, form = _packed(document), "application/msgpack"
    if rng.random() < 0.15:
        body = values.deep(rng)
    return "/api/v1/telemetry", form, *_squeezed(body, rng)


def _squeezed(body: bytes, rng: Random) -> tuple[str, bytes]:
    encoding = rng.choice(("", "gzip", "zstd"))
    if encoding == "gzip":
        body = gzip.compress(body, 1)
    elif encoding == "zstd":
        body = zstandard.ZstdCompressor().compress(body)
    return encoding, values.cut(body, rng) if rng.random() < 0.1 else body


def _remote_write(rng: Random) -> tuple[str, str, str, bytes]:
    labels = {"__name__": "DCGM_FI_DEV_GPU_TEMP", "gpu": "0", "Hostname": "oslo-a01-n1"}
    if rng.random() < 0.4:
        labels[rng.choice(sorted(labels))] = values.text(rng).encode("utf-8", "replace").decode()
    at = rng.choice((1_700_000_000_000, rng.randrange(-(2**63), 2**63)))
    series = [(labels, [(rng.choice(values.NUMBERS), at)])]
    make, form = rng.choice(
        (
            (request_1, "application/x-protobuf"),
            (request_2, "application/x-protobuf;proto=io.prometheus.write.v2.Request"),
        )
    )
    body = make(series)
    body = values.cut(body, rng) if rng.random() < 0.5 else body
    packed = snappy(body)
    packed = values.cut(packed, rng) if rng.random() < 0.1 else packed
    return "/api/v1/prometheus/write", form, "snappy", packed


def _otlp(rng: Random) -> tuple[str, str, str, bytes]:
    made = make_request(
        "oslo-a01-n1", gauge("hw.power", point(3.0, 1.7e9, hw__type="gpu", hw__id="0"))
    )
    if rng.random() < 0.5:
        changed = values.mutated(values.mutated(made, rng), rng)
        body, form = json.dumps(changed).encode(), "application/json"
    else:
        body, form = values.cut(as_protobuf(made), rng), "application/x-protobuf"
    if rng.random() < 0.1:
        body = values.deep(rng)
    return "/api/v1/otlp/v1/metrics", form, *_squeezed(body, rng)


def _alerts(rng: Random) -> tuple[str, str, str, bytes]:
    made: Any = {
        "version": "4", "status": "firing", "groupKey": "x", "receiver": "headroom",
        "alerts": [
            {"status": "firing", "labels": {"alertname": "Hot", "rack": "oslo/A01"},
             "annotations": {"summary": "hot"}, "startsAt": "2026-01-01T00:00:00Z",
             "endsAt": "0001-01-01T00:00:00Z", "fingerprint": "a"},
        ],
    }  # fmt: skip
    body = json.dumps(values.mutated(values.mutated(made, rng), rng)).encode()
    return "/api/v1/alertmanager", "application/json", "", body


_WAYS: tuple[Callable[[Random], tuple[str, str, str, bytes]], ...] = (
    _batch, _batch, _remote_write, _otlp, _alerts,
)  # fmt: skip


# --- What no client would send -------------------------------------------------------------------


def _method(maker: Maker, rng: Random, who: str) -> Sent:
    """Use any method on any route."""
    path = maker.corpus.path(rng.choice(maker.corpus.routes), rng, values.text)
    headers = maker.headers(who, by_session=rng.random() < 0.7)
    method = rng.choice(_METHODS)
    body = b"{}" if rng.random() < 0.3 else b""
    return Sent(method, _quoted(path, "/"), (*headers, *((_JSON,) if body else ())), body)


def _deep(maker: Maker, rng: Random, who: str) -> Sent:
    """Nest what is sent, to any operation that reads a body, in any form."""
    reading = [each for each in maker.corpus.described.operations if "requestBody" in each[2]]
    method, path, described = rng.choice(reading)
    for each in described.get("parameters", ()):
        path = path.replace(f"{{{each['name']}}}", rng.choice((*WORDS, "1", "2", "3")))
    form = rng.choice(sorted(described["requestBody"]["content"]))
    headers = (*maker.headers(who, by_session=False), ("Content-Type", form))
    return Sent(method.upper(), path, headers, values.deep(rng))


def _raw(maker: Maker, rng: Random, who: str) -> Sent:
    """Send a target that is no good address."""
    start = rng.choice(
        ("/", "//", "/api/v1/", "/jobs/", "/conditions/", "/static/", "/admin/", "/.%2e/")
    )
    odd = rng.choice(
        (
            "%00",
            "%",
            "%zz",
            "%c0%80",
            "%ed%a0%80",
            "%u0000",
            "\xff",
            "..%2f..",
            ";a=b",
            "%0d%0aX: 1",
        )
    )
    name = quote(rng.choice(maker.corpus.parameters))
    tail = rng.choice(("", f"?{name}={odd}", "?" + odd, "?&&==&=", "?" + f"{name}=1&" * 1_200))
    return Sent("GET", start + odd + tail, maker.headers(who, by_session=True))


_KINDS: dict[str, Callable[[Maker, Random, str], Sent]] = {
    "operation": _operation, "document": _document, "page": _page, "form": _form, "login": _login,
    "way in": _way_in, "method": _method, "deep": _deep, "raw": _raw,
}  # fmt: skip
_WEIGHTS = (34, 8, 16, 18, 2, 12, 5, 3, 2)


def _some(names: list[str], rng: Random) -> list[str]:
    return [rng.choice(names) for _ in range(rng.randrange(4))]


def _quoted(text: str, safe: str = "") -> str:
    return quote(text, safe=safe, errors="surrogatepass") or "%20"


def _with_query(path: str, pairs: list[tuple[str, str]]) -> str:
    return path + ("?" + urlencode(pairs, errors="surrogatepass") if pairs else "")
