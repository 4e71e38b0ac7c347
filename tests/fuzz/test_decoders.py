"""Every reader of what others write, on bytes of any kind: one of its own errors, or a value."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, timedelta
from random import Random
from typing import Any, TypeAlias

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounts.edge import bodies
from accounts.edge.parameters import EARLIEST, as_moment, whole_number
from admission.core.response import fallback
from admission.jobs import classes
from admission.slos import document as objective
from fleet import inventory
from headroom.contracts import BatchError, decode_batch
from headroom.documents import DocumentError
from headroom.jobs import reading as jobs
from lab.matrix import reading as scenarios
from policies.headroom.columns import FIELDS
from policies.playbooks import parse as playbooks
from policies.rules import cel
from policies.rules import document as rules
from policies.rules.errors import CelError
from policies.scopes import ScopeKind
from telemetry import spans
from telemetry.ingest import otlp, remote_write
from tests.builders.batches import make_batch
from tests.builders.inventory import make_inventory
from tests.builders.jobs import make_spec
from tests.builders.otlp import as_protobuf, gauge, make_request, point
from tests.builders.policies import rule_text
from tests.builders.remote_write import request_1, request_2, snappy
from tests.fuzz import values

#: One reader takes no longer than this for what is made here, s: a bound, not a benchmark.
MOST_SECONDS = 10.0

Reader: TypeAlias = Callable[[bytes], Any]


def _text(read: Callable[[str], Any]) -> Reader:
    """Have a reader of texts read bytes, as its edge does it."""
    return lambda body: read(body.decode("utf-8", "replace"))


def _condition(text: str) -> Any:
    return cel.compile(text, FIELDS[ScopeKind.RACK])


_BATCH = msgspec.to_builtins(make_batch("agent-1", "n1", gpus=2))
_SPEC = json.dumps(make_spec("job", {"train": ()}, 8)).encode()
_CLASS = classes.built_in_text("high-density-training").encode()
_SERIES: Any = [({"__name__": "DCGM_FI_DEV_GPU_TEMP", "gpu": "0"}, [(1.0, 1_700_000_000_000)])]
_OTLP = as_protobuf(make_request("n1", gauge("hw.power", point(3.0, 1.7e9, hw__id="0"))))

#: The reader, what it may raise, and something that it takes.
READERS: dict[str, tuple[Reader, type[Exception], bytes]] = {
    "json": (bodies.read_json, bodies.BadBody, b'{"a": [1, {"b": "x"}]}'),
    "batch in json": (
        lambda body: decode_batch(body, json=True), BatchError, json.dumps(_BATCH).encode(),
    ),
    "batch in msgpack": (
        lambda body: decode_batch(body, json=False), BatchError, msgspec.msgpack.encode(_BATCH),
    ),
    "remote write 1": (
        lambda body: remote_write.decode(body, 1), BatchError, request_1(_SERIES),
    ),
    "remote write 2": (
        lambda body: remote_write.decode(body, 2), BatchError, request_2(_SERIES),
    ),
    "snappy": (
        lambda body: remote_write.uncompress(body, "snappy"), BatchError,
        snappy(request_1(_SERIES)),
    ),
    "otlp": (lambda body: otlp.decode(body, otlp.PROTOBUF), BatchError, _OTLP),
    "otlp in json": (
        lambda body: otlp.decode(body, otlp.JSON), BatchError, b'{"resourceMetrics": []}',
    ),
    "job": (jobs.read, jobs.SpecError, _SPEC),
    "job in yaml": (lambda body: jobs.read(body, jobs.YAML), jobs.SpecError, _SPEC),
    "class": (_text(classes.parse), DocumentError, _CLASS),
    "scenario": (scenarios.read, scenarios.ScenarioError, b"name: x\ntitle: X\nduration: 60s\n"),
    "rule": (_text(rules.read), DocumentError, rule_text().encode()),
    "playbook": (_text(playbooks.parse), DocumentError, b"name: x\nsteps: []\n"),
    "objective": (_text(objective.read), DocumentError, b"name: x\n"),
    "fallback": (_text(fallback.read_policy), DocumentError, b"name: x\n"),
    "inventory": (inventory.parse, inventory.InventoryError, make_inventory(gpus=16).encode()),
    "condition": (_text(_condition), CelError, b'hottest_c > 80.0 && site == "oslo"'),
    "span": (
        _text(lambda text: spans.parse({"from": text}, 1.71e9)),
        spans.ParameterError, b"2024-01-01",
    ),
}  # fmt: skip

_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
_CASES = pytest.mark.parametrize("name", READERS)


def _read(name: str, body: bytes) -> None:
    read, refusal, _ = READERS[name]
    began = time.monotonic()
    with suppress(refusal):
        read(body)
    assert time.monotonic() - began < MOST_SECONDS


@_CASES
@settings(max_examples=40)
@given(body=st.binary(max_size=120) | _texts.map(str.encode))
def test_any_bytes_are_read_or_refused(name: str, body: bytes) -> None:
    _read(name, body)


@_CASES
@settings(max_examples=60)
@given(seed=st.integers(0, 2**32))
def test_what_is_nearly_right_is_read_or_refused(name: str, seed: int) -> None:
    rng, right = Random(seed), READERS[name][2]
    try:
        changed = json.dumps(values.mutated(json.loads(right), rng)).encode()
    except ValueError:
        changed = right
    _read(name, changed if rng.random() < 0.5 else values.cut(right, rng))


@_CASES
@pytest.mark.parametrize("seed", range(12))
def test_what_is_nested_deep_is_read_or_refused(name: str, seed: int) -> None:
    _read(name, values.deep(Random(seed)))


@_CASES
def test_odd_numbers_and_texts_are_read_or_refused(name: str) -> None:
    for odd in (*values.TEXTS, *values.DIGITS, *values.MOMENTS):
        _read(name, odd.encode("utf-8", "replace"))
        _read(name, b"a: " + odd.encode("utf-8", "replace"))


@given(text=st.text(max_size=30) | st.integers().map(str), most=st.integers(0, 2**70))
def test_a_whole_number_is_one_or_none(text: str, most: int) -> None:
    found = whole_number(text, most=most)
    assert found is None or (0 <= found <= most and found == int(text))


@given(at=st.datetimes(timezones=st.timezones()) | st.datetimes())
def test_a_moment_is_one_to_which_days_can_be_added(at: Any) -> None:
    with suppress(ValueError):
        found = as_moment(at)
        assert found.tzinfo is UTC
        assert found + timedelta(days=3_650) > EARLIEST


def test_what_is_right_is_taken() -> None:
    for name in ("json", "batch in json", "batch in msgpack", "snappy", "otlp", "job", "class",
                 "scenario", "rule", "inventory", "condition", "span"):  # fmt: skip
        read, _, right = READERS[name]
        read(right)
