from __future__ import annotations

import csv
import io
import time

import msgspec
import pytest
from django.test import Client

from telemetry import samples
from tests.builders.accounts import api_client
from tests.builders.readings import make_node, write_samples

pytestmark = pytest.mark.django_db
URL = "/api/v1/series"
T0 = 1_800_000_000.0


def test_it_answers_with_columns() -> None:
    gpu = make_node().gpus.order_by("index")[0]
    write_samples(samples.GPU, gpu.pk, [T0, T0 + 10], power_w=[500.25, None])
    query = f"kind=gpu&id={gpu.pk}&fields=power_w&from={T0:.0f}&to={T0 + 60:.0f}"
    assert api_client().get(f"{URL}?{query}").json() == {
        "kind": "gpu",
        "id": gpu.pk,
        "start": T0,
        "end": T0 + 60,
        "step_s": None,
        "method": "minmax",
        "tiers": [{"tier": "raw", "start": T0, "end": T0 + 60}],
        "age_s": 0.0,
        "columns": {"t": [T0, T0 + 10], "power_w": [500.25, None]},
    }


def test_a_range_ends_now() -> None:
    gpu = make_node().gpus.order_by("index")[0]
    write_samples(samples.GPU, gpu.pk, [time.time() - 3], power_w=500)
    body = api_client().get(f"{URL}?kind=gpu&id={gpu.pk}&range=15m").json()
    assert body["columns"]["power_w"] == [500]
    assert body["end"] - body["start"] == pytest.approx(900)


def test_the_same_comes_as_csv() -> None:
    gpu = make_node().gpus.order_by("index")[0]
    write_samples(samples.GPU, gpu.pk, [T0, T0 + 10], power_w=[500.25, None], temp_c=60)
    query = f"kind=gpu&id={gpu.pk}&fields=power_w,temp_c&from={T0:.0f}&to={T0 + 60:.0f}"
    answer = api_client().get(f"{URL}.csv?{query}")
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    assert answer["Content-Disposition"] == (
        f'attachment; filename="gpu-{gpu.pk}-20270115T080000Z.csv"'
    )
    assert list(csv.reader(io.StringIO(answer.content.decode()))) == [
        ["time", "power_w", "temp_c"],
        ["2027-01-15T08:00:00.000+00:00", "500.25", "60.0"],
        ["2027-01-15T08:00:10.000+00:00", "", "60.0"],
    ]


def test_it_comes_in_the_form_that_is_asked_for() -> None:
    gpu = make_node().gpus.order_by("index")[0]
    write_samples(samples.GPU, gpu.pk, [T0, T0 + 10], power_w=[500.25, None], throttle=4)
    query = f"kind=gpu&id={gpu.pk}&fields=power_w,throttle&from={T0:.0f}&to={T0 + 60:.0f}"
    client = api_client()
    columns = {"t": [T0, T0 + 10], "power_w": [500.25, None], "throttle": [4, 4]}
    for url, accept in ((query, "application/msgpack"), (f"{query}&format=msgpack", "*/*")):
        answer = client.get(f"{URL}?{url}", headers={"Accept": accept})
        assert answer["Content-Type"] == "application/msgpack"
        assert msgspec.msgpack.decode(answer.content)["columns"] == columns
    answer = client.get(f"{URL}?{query}", headers={"Accept": "text/csv"})
    assert answer.content.decode().splitlines()[1] == "2027-01-15T08:00:00.000+00:00,500.25,4"


def test_an_error_is_json_whatever_was_asked_for() -> None:
    for query in ("kind=gpu&id=0&format=csv", "kind=gpu&id=1&format=xml"):
        answer = api_client().get(f"{URL}?{query}")
        assert (answer.status_code, answer["Content-Type"]) == (400, "application/json")
    assert answer.json()["error"]["field"] == "format"


@pytest.mark.parametrize("path", [URL, f"{URL}.csv"])
@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("", "kind"),
        ("kind=gpu", "id"),
        ("kind=gpu&id=x", "id"),
        ("kind=gpu&id=1&fields=secret", "fields"),
        ("kind=gpu&id=1&range=forever", "range"),
        ("kind=gpu&id=1&from=x", "from"),
        ("kind=gpu&id=1&points=1", "points"),
        ("kind=rack&id=1&band=1", "band"),
        ("kind=gpu&id=1&method=lttb", "method"),
        ("kind=gpu&id=1&tier=week", "tier"),
    ],
)
def test_a_wrong_parameter_is_named(path: str, query: str, field: str) -> None:
    answer = api_client().get(f"{path}?{query}")
    assert (answer.status_code, answer.json()["error"]["field"]) == (400, field)


def test_what_is_not_there_is_not_found() -> None:
    answer = api_client().get(f"{URL}?kind=gpu&id=1")
    assert answer.status_code == 404
    assert "gpu 1" in answer.json()["error"]["message"]


def test_it_is_not_for_everybody(client: Client) -> None:
    assert client.get(f"{URL}?kind=gpu&id=1").status_code == 401


@pytest.mark.parametrize(
    ("path", "name", "close"),
    [
        ("/api/v1/series?kind=gpu&id=1&feilds=power_w", "feilds", "fields"),
        ("/api/v1/throttle-events?sitee=oslo", "sitee", "site"),
        ("/api/v1/xid-events?nodes=n1", "nodes", "node"),
        ("/api/v1/racks?sit=oslo", "sit", "site"),
        ("/api/v1/headroom?kind=rack&stie=oslo", "stie", "site"),
        ("/api/v1/site-conditions?sites=oslo", "sites", "site"),
        ("/api/v1/agents?stat=live", "stat", "state"),
    ],
)
def test_a_parameter_that_is_none_is_refused_with_the_closest(
    path: str, name: str, close: str
) -> None:
    answer = api_client().get(path)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["field"] == name
    assert f"Did you mean {close}?" in error["message"]


def test_times_of_an_answer_are_taken_back() -> None:
    gpu = make_node(gpus=1).gpus.get()
    client = api_client()
    first = client.get(f"/api/v1/series?kind=gpu&id={gpu.pk}&range=15m").json()
    query = f"kind=gpu&id={gpu.pk}&from={first['start']!r}&to={first['end']!r}"
    again = client.get(f"/api/v1/series?{query}").json()
    assert (again["start"], again["end"]) == (first["start"], first["end"])
