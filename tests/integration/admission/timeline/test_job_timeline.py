"""The timeline of an attempt has its own place and time, and is for those who see the job."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from accounts.roles import Role
from admission.jobs.models import Attempt, Job
from fleet import snapshot
from fleet.models import Gpu, Link
from headroom.contracts import ThrottleCause
from policies.restrictions import store
from policies.restrictions.kinds import RestrictionKind, Wanted
from policies.scopes import Scope, ScopeKind
from telemetry import housekeeping
from telemetry.models import Mount, ReportedJob, ThrottleEvent, XidEvent
from telemetry.samples import GPU, JOB, LINK, STORAGE
from tests.builders.accounts import api_client
from tests.builders.jobs import make_attempt, make_directive, make_job, note
from tests.builders.readings import make_node, write_samples

pytestmark = pytest.mark.django_db

URL = "/api/v1/jobs/llama/timeline"
EVERY_S = 10.0


@pytest.fixture
def began() -> float:
    """Not at the start of a minute: a roll-up has readings of before and after."""
    return float(int(time.time()) // 3600 * 3600 - 7200 + 25)


@pytest.fixture
def job(db: None) -> Job:
    make_node("n1", gpus=2)
    snapshot.fresh()
    return make_job("llama", gpus=1, state="running")


@pytest.fixture
def ended(job: Job, began: float) -> Attempt:
    """An attempt of 15 minutes on one of the two GPUs of a node."""
    return make_attempt(
        job.phases.get(), {"n1": [0]}, state="ended", outcome="failed", why="exit code 1",
        dispatched_at=at(began), started_at=at(began + 20.0), ended_at=at(began + 900.0),
    )  # fmt: skip


def at(moment: float) -> datetime:
    return datetime.fromtimestamp(moment, UTC)


def gpu(index: int) -> Gpu:
    return Gpu.objects.get(node__name="n1", index=index)


def read(index: int, first: float, last: float, power_w: float, **more: Any) -> None:
    """Have a GPU be read each 10 s from ``first`` up to ``last``."""
    times = [first + EVERY_S * each for each in range(int((last - first) / EVERY_S))]
    values = {"power_w": power_w, "power_limit_w": 700.0, "temp_c": 60.0, "sm_mhz": 1800.0, **more}
    write_samples(GPU, gpu(index).pk, times, **values)


def ask(params: Mapping[str, str] | None = None, status: int = 200) -> dict[str, Any]:
    answer = api_client(Role.OPERATOR).get(URL, params or {})
    assert answer.status_code == status, answer.content
    found: dict[str, Any] = answer.json()
    return found


def row(found: Mapping[str, Any], key: str) -> dict[str, Any]:
    (only,) = [each for each in found["rows"] if each["key"] == key]
    return dict(only)


def known(values: list[float | None]) -> list[float]:
    return [value for value in values if value is not None]


class TestItsOwnPlaceAndTime:
    @pytest.mark.parametrize("rolled_up", [False, True])
    def test_no_reading_of_before_after_or_another_gpu_is_in_it(
        self, ended: Attempt, began: float, rolled_up: bool
    ) -> None:
        read(0, began - 600.0, began, 111.0)  # another project's, before
        read(0, began, began + 900.0, 500.0)
        read(0, began + 900.0, began + 1500.0, 222.0)  # and after
        read(1, began - 600.0, began + 1500.0, 333.0)  # and beside
        if rolled_up:
            while not housekeeping.roll_up(time.time(), budget_s=60):
                pass
        # So few points that roll-ups by the minute would do, if they were of it alone.
        found = ask({"points": "10" if rolled_up else "600"})
        power = row(found, "power")
        for name in ("power_w", "power_w_min", "power_w_max"):
            assert set(known(power["columns"][name])) == {500.0}
        assert power["columns"]["t"][0] >= began - power["step_s"]
        assert power["columns"]["t"][-1] < began + 900.0
        assert (found["start"], found["end"], found["live"]) == (began, began + 900.0, False)

    def test_a_longer_span_is_cut_to_its_life(self, ended: Attempt, began: float) -> None:
        found = ask({"from": str(began - 3600.0), "to": str(began + 300.0)})
        assert (found["start"], found["end"]) == (began, began + 300.0)
        # "The last" of what is over ends where it ended.
        assert ask({"range": "5m"})["start"] == began + 600.0

    def test_errors_and_throttling_of_other_gpus_and_times_are_not_in_it(
        self, ended: Attempt, began: float
    ) -> None:
        for index, opened in ((0, 100.0), (0, -500.0), (1, 100.0)):
            ThrottleEvent.objects.create(
                gpu=gpu(index), cause=ThrottleCause.HW_THERMAL, opened_at=at(began + opened),
                updated_at=at(began + opened + 60.0), closed_at=at(began + opened + 60.0),
            )  # fmt: skip
            XidEvent.objects.create(
                node=gpu(index).node, gpu=gpu(index), ts=at(began + opened), xid=79
            )
        found = ask()
        (lane,) = [each for each in found["lanes"] if each["kind"] == "throttle"]
        assert (lane["key"], lane["start"], lane["end"]) == (
            "hw_thermal", [began + 100.0], [began + 160.0],
        )  # fmt: skip
        marks = found["marks"]
        (place,) = [i for i, kind in enumerate(marks["kind"]) if kind == "xid"]
        assert (marks["t"][place], marks["bad"][place]) == (began + 100.0, True)

    def test_reports_of_a_job_count_where_no_other_attempt_overlaps(
        self, job: Job, ended: Attempt, began: float
    ) -> None:
        report = ReportedJob.objects.create(name="llama")
        write_samples(JOB, report.pk, [began + 100.0, began + 110.0], loss=[2.5, 2.25])
        assert known(row(ask(), "loss")["columns"]["loss"]) == [2.5, 2.25]
        beside = make_job("beside", state="running").phases.get()
        beside.job, beside.name, beside.index = job, "beside", 1
        beside.save()
        make_attempt(beside, {"n1": [1]}, dispatched_at=at(began + 50.0))
        absent = [each["title"] for each in ask({"phase": "train"})["absent"]]
        assert "Training loss" in absent
        own = ReportedJob.objects.create(name=ended.key)
        write_samples(JOB, own.pk, [began + 100.0, began + 110.0], loss=[3.5, 3.25])
        assert known(row(ask({"phase": "train"}), "loss")["columns"]["loss"]) == [3.5, 3.25]


class TestWhatItTells:
    def test_rows_of_the_seed_are_there_or_named_as_not_reported(
        self, ended: Attempt, began: float
    ) -> None:
        found = ask()
        assert found["rows"] == []
        assert [(each["title"], each["why"]) for each in found["absent"]] == [
            (title, "not reported")
            for title in (
                "Training loss", "Time of a step", "Power of a GPU", "GPU temperature", "SM clock",
                "Memory bandwidth in use", "Fan speed", "Network retransmits", "Storage latency",
            )
        ]  # fmt: skip
        read(0, began, began + 900.0, 500.0, mem_bw_util=70.0, fan=55.0)
        report = ReportedJob.objects.create(name="llama")
        times = [began + 100.0, began + 110.0]
        write_samples(JOB, report.pk, times, loss=2.5, step_time_s=1.5, data_wait_s=0.25)
        node = gpu(0).node
        link = Link.objects.create(
            name="n1/eth0", kind="uplink", site=node.rack.site, node=node, capacity_bits_per_s=1e11
        )
        write_samples(LINK, link.pk, times, retransmits_per_s=3.0)
        mount = Mount.objects.create(node=node, name="/scratch")
        write_samples(STORAGE, mount.pk, times, node_id=node.pk, fsync_s=0.004)
        snapshot.fresh()
        found = ask()
        assert found["absent"] == []
        units = {each["key"]: each["unit"] for each in found["rows"]}
        assert units == {
            "loss": "", "step_time": "s", "power": "W", "temperature": "°C", "clock": "MHz",
            "memory_bandwidth": "%", "fan": "%", "retransmits": "1/s", "storage": "s",
        }  # fmt: skip
        assert known(row(found, "storage")["columns"]["fsync_s"])[0] == pytest.approx(0.004)

    def test_a_band_spans_the_gpus(self, job: Job, began: float) -> None:
        make_attempt(
            job.phases.get(), {"n1": [0, 1]}, state="ended", outcome="succeeded",
            dispatched_at=at(began), started_at=at(began), ended_at=at(began + 300.0),
        )  # fmt: skip
        read(0, began, began + 300.0, 300.0)
        read(1, began, began + 300.0, 500.0, power_limit_w=450.0)
        power = row(ask(), "power")
        found = {name: set(known(values)) for name, values in power["columns"].items()}
        assert (found["power_w"], found["power_w_min"], found["power_w_max"]) == (
            {400.0}, {300.0}, {500.0},
        )  # fmt: skip
        assert found["power_limit_w_min"] == {450.0}
        limits = [(e["name"], e["value"]) for e in power["lines"] if e["role"] == "limit"]
        assert limits == [("lowest cap", None), ("placed at", 550.0)]

    def test_where_no_reading_tells_a_limit_it_is_the_rating(
        self, ended: Attempt, began: float
    ) -> None:
        read(0, began, began + 300.0, 300.0)
        lines = row(ask(), "temperature")["lines"]
        assert [(e["name"], e["value"]) for e in lines if e["role"] == "limit"] == [
            ("rated slowdown", 87.0)
        ]

    def test_lanes_are_what_was_done_to_it(self, job: Job) -> None:
        attempt = make_attempt(job.phases.get(), {"n1": [0]})
        make_directive(attempt)
        now = datetime.now(UTC)
        cap, lease = RestrictionKind.POWER_CAP_W, now + timedelta(hours=1)
        wanted = [
            Wanted(cap, Scope(kind, name), 400.0, "hot", "user:anna", name, lease)
            for kind, name in (
                (ScopeKind.RACK, "oslo/A01"), (ScopeKind.GPU, "n1/0"), (ScopeKind.GPU, "n1/1"),
                (ScopeKind.SITE, "oslo"),
            )
        ]  # fmt: skip
        store.apply(wanted, now=now - timedelta(minutes=1))
        found = ask()
        assert found["live"]
        lanes = {each["key"]: each for each in found["lanes"]}
        assert [*lanes] == ["starting", "running", "set_batch_scale", "power_cap_w"]
        assert lanes["running"]["end"] == [None]
        on = sorted(
            text.partition(" on ")[2].partition(",")[0] for text in lanes["power_cap_w"]["text"]
        )
        assert on == ["gpu n1/0", "rack oslo/A01", "site oslo"]

    def test_a_failure_and_the_history_are_marks(
        self, job: Job, ended: Attempt, began: float
    ) -> None:
        note(job, "dispatched", "Attempt 1 of train", phase="train", at=at(began + 1.0))
        note(job, "reason", "GpuShortage", phase="train", at=at(began + 2.0))
        note(job, "held", "later", at=at(began + 5000.0))
        marks = ask()["marks"]
        assert marks["kind"] == ["history", "failure"]
        assert marks["text"] == ["dispatched: Attempt 1 of train", "failed: exit code 1"]

    def test_who_has_the_rest_asks_for_the_tail(self, ended: Attempt, began: float) -> None:
        read(0, began, began + 900.0, 500.0)
        whole, tail = ask(), ask({"since": str(began + 801.0)})
        times = row(tail, "power")["columns"]["t"]
        assert times == row(whole, "power")["columns"]["t"][-len(times) :]
        assert began + 801.0 - EVERY_S <= times[0] <= began + 801.0
        assert tail["since"] == began + 801.0


class TestForms:
    def test_csv_has_all_rows_by_time(self, ended: Attempt, began: float) -> None:
        read(0, began, began + 900.0, 500.0)
        answer = api_client(Role.OPERATOR).get(URL, {"format": "csv"})
        assert "llama-train-1-" in answer["Content-Disposition"]
        lines = list(csv.DictReader(io.StringIO(answer.content.decode())))
        assert len(lines) == 90
        assert (lines[0]["power_w"], lines[0]["temp_c_max"]) == ("500.0", "60.0")

    def test_messagepack_says_the_same(self, ended: Attempt, began: float) -> None:
        read(0, began, began + 900.0, 500.0)
        answer = api_client(Role.OPERATOR).get(URL, {"format": "msgpack"})
        assert msgspec.msgpack.decode(answer.content) == ask()


class TestRefused:
    def test_a_job_of_another_project_is_not_there(self, ended: Attempt) -> None:
        assert api_client(Role.ML_USER).get(URL).status_code == 404
        assert api_client(Role.ML_USER).get(f"{URL}?format=csv").status_code == 404

    def test_a_job_that_never_began_has_none(self, job: Job) -> None:
        assert "none has begun yet" in ask(status=404)["error"]["message"]

    @pytest.mark.parametrize(
        ("params", "field"),
        [
            ({"from": "yesterday"}, "from"),
            ({"range": "5y"}, "range"),
            ({"from": "2001-01-01", "to": "2001-01-02"}, "from"),
            ({"since": "soon"}, "since"),
            ({"points": "9999999"}, "points"),
            ({"attempt": "first"}, "attempt"),
            ({"fields": "power_w"}, "fields"),
            ({"format": "xml"}, "format"),
        ],
    )
    def test_bad_input_is_named(self, ended: Attempt, params: dict[str, str], field: str) -> None:
        assert ask(params, status=400)["error"]["field"] == field

    def test_an_attempt_that_is_not_there(self, ended: Attempt) -> None:
        ask({"attempt": "2"}, status=404)
        ask({"phase": "none"}, status=404)
