"""An API server answers as published exchanges have it, down to code, reason and cause."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kubernetes.client import Client, Refused

Document = dict[str, Any]

EXCHANGES = yaml.safe_load((Path(__file__).parent / "exchanges" / "api.yaml").read_text())


def holds(found: Any, wanted: Any) -> bool:
    """Whether an answer holds what is wanted of it, and maybe more."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            name in found and holds(found[name], value) for name, value in wanted.items()
        )
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(holds, found, wanted))
    return bool(found == wanted)


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda exchange: str(exchange["name"]))
def test_the_answer_is_that_of_the_exchange(
    client: Client, namespace: str, exchange: Document
) -> None:
    for given in exchange.get("given", ()):
        client.create({**given, "metadata": {**given["metadata"], "namespace": namespace}})
    send = exchange["send"]
    path = send["path"].format(namespace=namespace)
    kind = send.get("kind", "application/json")
    try:
        code, answer = client.exchange(
            send["method"], path, send.get("body"), kind, **send.get("query", {})
        )
    except Refused as refused:
        code, answer = refused.code, refused.status
    assert code == exchange["code"]
    assert holds(answer, exchange["answer"]), answer
    assert exchange.get("says", "") in answer.get("message", "")
