"""What agents tell of versions comes into the database: the newest of each of their nodes."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest
from django.test import Client

from accounts.roles import Role
from headroom.contracts import VersionReport
from telemetry.versions.models import NodeVersions
from tests.builders.accounts import api_client
from tests.builders.batches import make_batch
from tests.integration.telemetry.conftest import Source, drain_everything

pytestmark = pytest.mark.django_db


def push(source: Source, *reports: VersionReport, seq: int = 1) -> Any:
    batch = make_batch("agent-1", "n1", seq)
    batch.versions = list(reports)
    answer = source.push(batch)
    drain_everything()
    return answer


def report(driver: str = "570.1", ago_s: float = 0.0, node: str = "n1") -> VersionReport:
    return VersionReport(node=node, at=time.time() - ago_s, driver=driver, nccl="2.27.3")


def test_the_newest_report_of_a_node_counts_whenever_it_comes(source: Source) -> None:
    assert push(source, report("580.2")).status_code == 202
    assert push(source, report("570.1", ago_s=60.0), seq=2).status_code == 202
    known = NodeVersions.objects.get()
    assert (known.node.name, known.driver, known.nccl, known.vbios) == ("n1", "580.2", "2.27.3", "")


def test_it_is_known_since_when_it_is_so(source: Source) -> None:
    first, second = report(ago_s=60.0), report(ago_s=30.0)
    push(source, first)
    push(source, second, seq=2)
    known = NodeVersions.objects.get()
    assert known.changed_at.timestamp() == pytest.approx(first.at)
    assert known.told_at.timestamp() == pytest.approx(second.at)
    push(source, report("580.2"), seq=3)
    assert NodeVersions.objects.get().changed_at > known.told_at


def test_a_report_on_a_node_of_somebody_else_is_refused(source: Source) -> None:
    assert push(source, report(node="n9")).status_code >= 400
    assert not NodeVersions.objects.exists()


def test_a_report_of_the_future_is_refused_and_the_readings_beside_it_are_taken(
    source: Source,
) -> None:
    answer = push(source, report(ago_s=-86_400.0))
    assert answer.status_code == 400
    assert answer.json()["refused"][0]["field"] == "versions[0].at"
    assert answer.json()["ack"]
    assert not NodeVersions.objects.exists()


def test_a_version_with_a_line_break_is_refused(source: Source) -> None:
    odd = msgspec.structs.replace(report(), driver="580\n570")
    answer = push(source, odd)
    assert answer.status_code == 400
    assert answer.json()["refused"][0]["field"] == "versions[0].driver"


def test_the_api_lists_what_nodes_run(source: Source) -> None:
    push(source, report("580.2"))
    assert Client().get("/api/v1/versions").status_code in (401, 403)
    client = api_client(Role.VIEWER)
    (row,) = client.get("/api/v1/versions?driver=580.2").json()["results"]
    assert (row["node"], row["driver"], row["image"]) == ("n1", "580.2", "")
    assert client.get("/api/v1/versions?driver=1").json()["results"] == []
