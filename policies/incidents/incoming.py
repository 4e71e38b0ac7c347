"""Alerts of a Prometheus Alertmanager, as its webhook sends them (version 4), to firings."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from policies.firings import Firing, Severity
from policies.incidents.grouping import FINGERPRINT
from policies.scopes import Scope, ScopeKind

__all__ = ["NOWHERE", "BadPayload", "Incoming", "read"]

#: The most alerts of one request, and labels or annotations of an alert.
MAX_ALERTS = 10_000
_MAX_LABELS = 64
_MAX_TEXT = 4_000
_MAX_NAME = 200
_VERSION = 0

#: The scope of an alert that names nothing of the inventory.
NOWHERE = Scope(ScopeKind.SITE, "elsewhere")

_Labels = Annotated[dict[str, str], msgspec.Meta(max_length=_MAX_LABELS)]
_SEVERITIES = {
    "critical": Severity.CRITICAL,
    "page": Severity.CRITICAL,
    "error": Severity.CRITICAL,
    "emergency": Severity.CRITICAL,
    "warning": Severity.WARNING,
    "info": Severity.INFO,
    "none": Severity.INFO,
}


class BadPayload(ValueError):
    """The request is none that Alertmanager sends. ``field``: the part that is wrong."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True)
class Incoming:
    firing: list[Firing]
    resolved: list[Firing]


class _Status(StrEnum):
    FIRING = "firing"
    RESOLVED = "resolved"


class _Alert(msgspec.Struct):
    status: _Status
    labels: _Labels
    starts_at: Annotated[datetime, msgspec.Meta(tz=True)] = msgspec.field(name="startsAt")
    annotations: _Labels = {}
    generator_url: str = msgspec.field(name="generatorURL", default="")
    fingerprint: Annotated[str, msgspec.Meta(max_length=_MAX_NAME)] = ""


class _Payload(msgspec.Struct):
    version: str
    alerts: Annotated[list[_Alert], msgspec.Meta(max_length=MAX_ALERTS)]


def read(value: Any, now: datetime) -> Incoming:
    """Return the firings of a request's JSON. Raises BadPayload. Extra fields are passed over."""
    try:
        payload = msgspec.convert(value, _Payload)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$")
        raise BadPayload(where.rstrip("`").lstrip("."), message) from None
    if payload.version != "4":
        raise BadPayload("version", f"version {payload.version!r} is not known: 4 is")
    found = Incoming([], [])
    for index, alert in enumerate(payload.alerts):
        firing = _firing(alert, f"alerts[{index}]", now)
        (found.firing if alert.status is _Status.FIRING else found.resolved).append(firing)
    return found


def _firing(alert: _Alert, place: str, now: datetime) -> Firing:
    for name, text in _texts(alert):
        _check_text(f"{place}.{name}", text)
    alertname = alert.labels.get("alertname", "")
    if not 0 < len(alertname) <= _MAX_NAME:
        raise BadPayload(f"{place}.labels.alertname", f"give 1 to {_MAX_NAME} characters")
    labels = {**alert.labels, FINGERPRINT: alert.fingerprint or _digest(alert.labels)}
    summary = alert.annotations.get("summary") or alert.annotations.get("description", "")
    values: dict[str, float | str | bool] = dict(alert.annotations)
    if alert.generator_url:
        values["generator_url"] = alert.generator_url
    return Firing(
        rule=f"alertmanager:{alertname}",
        version=_VERSION,
        scope=scope_of(alert.labels),
        severity=_SEVERITIES.get(alert.labels.get("severity", "").lower(), Severity.WARNING),
        since=alert.starts_at,
        at=now,
        summary=summary,
        values=values,
        labels=labels,
    )


def scope_of(labels: Mapping[str, str]) -> Scope:
    """Return the scope that labels name: a node, a rack or so at a site, the site; else NOWHERE."""
    site = labels.get("site", "")
    for name in ("node", "nodename", "instance"):
        if labels.get(name):
            # "host:port", as Prometheus names what it scrapes.
            return _scope(ScopeKind.NODE, labels[name].partition(":")[0])
    for kind in (ScopeKind.RACK, ScopeKind.POWER_DOMAIN, ScopeKind.ZONE):
        name = labels.get(kind.value, "")
        if name and (site or "/" in name):
            return _scope(kind, name if "/" in name else f"{site}/{name}")
    if labels.get("link"):
        return _scope(ScopeKind.LINK, labels["link"])
    return _scope(ScopeKind.SITE, site) if site else NOWHERE


def _scope(kind: ScopeKind, name: str) -> Scope:
    return Scope(kind, name[: 2 * _MAX_NAME])


def _texts(alert: _Alert) -> Iterator[tuple[str, str]]:
    for field, texts in (("labels", alert.labels), ("annotations", alert.annotations)):
        for name, text in texts.items():
            yield field, name
            yield f"{field}.{name}", text
    yield "fingerprint", alert.fingerprint
    yield "generatorURL", alert.generator_url


def _check_text(place: str, text: str) -> None:
    """Refuse a text that the database cannot store."""
    if len(text) > _MAX_TEXT:
        raise BadPayload(place, f"longer than {_MAX_TEXT} characters")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadPayload(place, "no text: half of a surrogate pair") from None
    if "\0" in text:
        raise BadPayload(place, "a text with a null character")


def _digest(labels: Mapping[str, str]) -> str:
    """Return a digest that identifies the alert, where a sender gives no fingerprint."""
    text = msgspec.json.encode(sorted(labels.items()))
    return hashlib.sha256(text).hexdigest()[:16]
