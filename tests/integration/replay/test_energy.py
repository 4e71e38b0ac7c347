"""Energy of the published training runs, as roll-ups tell it, beside a trapezoid over the file.

The readings go the whole way: pushed as an agent would, drained, rolled up by the housekeeper, and
read back through the API. They come with all that is odd about them: gaps of 20 s, two readings of
one time, zero and negative watts.

Needs the data set ``mlperf-train-h100-node-power``, found as tests/data_sets.py says; skipped where
it is not there.
"""

from __future__ import annotations

import io
import json
import math
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from bench.stack import Stack, new_state_dir, running_on
from headroom.client import Client
from headroom.contracts import MeterColumns, TelemetryBatch
from headroom.replay.command import ReplayOptions, run_replay
from headroom.replay.formats import load as load_recording
from tests.data_sets import data_set
from tests.integration.replay.runs import Run, load

DATA_SET = "mlperf-train-h100-node-power"
#: Of one run's energy.
TOLERANCE = 0.001
#: Has zero and negative readings, doubled times and gaps of 20 s.
ODD = "power_8node_ssd.csv.gz"
_BATCH_ROWS = 20_000
_PATIENCE_S = 180.0
_POLL_S = 0.5
#: All rows come from one agent, and all questions from one user, within minutes.
_ENOUGH = {"TELEMETRY_BURST_ROWS_PER_NODE": "1000000", "DEAR_REQUESTS_PER_S": "1000"}


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """An installation that takes days of readings from one agent at once."""
    words = ("--web-workers", "1", "--services", "web", "worker", "housekeeper", "beat")
    with new_state_dir() as folder, running_on(folder, "--no-demo", *words, env=_ENOUGH) as started:
        yield started


@pytest.mark.slow(
    beside="tests/integration/telemetry/test_real_meters.py::"
    "test_the_energy_of_each_run_is_that_of_the_file"
)
def test_energy_per_run_is_that_of_the_file_and_odd_readings_are_flagged(
    stack: Stack, token_file: Path
) -> None:
    runs = load([data_set(DATA_SET) / ODD], until_s=time.time())
    assert sum(run.suspect for run in runs) == 18
    with Meters(stack, token_file, runs) as meters:
        meters.check()


@pytest.mark.slow
def test_energy_of_every_published_run_is_that_of_its_file(stack: Stack, token_file: Path) -> None:
    files = sorted(data_set(DATA_SET).glob("power_*.csv.gz"))
    runs = load([file for file in files if file.name != ODD], until_s=time.time())
    assert sum(run.readings for run in runs) == 591_066
    with Meters(stack, token_file, runs) as meters:
        meters.check()


@pytest.mark.slow(
    beside="tests/unit/headroom/test_replay.py::"
    "test_a_log_of_steps_is_played_as_a_job_on_no_machine"
)
def test_a_log_of_steps_is_taken_whole_and_its_site_has_no_load(
    stack: Stack, token_file: Path, tmp_path: Path
) -> None:
    steps = tmp_path / "steps.csv"
    steps.write_text("t,step,loss\n" + "".join(f"{n},{n},{9 - n / 100}\n" for n in range(300)))
    (tmp_path / "recording.yaml").write_text(
        "columns: {time: t, time_unit: s, step: step, loss: loss}"
    )
    out = io.StringIO()
    options = ReplayOptions(steps, 100.0, stack.url, token_file, None, "ac", None, False)
    # It ends by an error where the server refuses a row, or does not have all of them for good.
    assert run_replay(options, out)
    assert "300 sent, all durable" in out.getvalue()
    site = load_recording(steps).title
    with Client(stack.url, token_file.read_text().strip()) as operator:
        (found,) = operator.get("/api/v1/sites", {"name": f"replay-{site}"})["results"]
    assert found["name"] == f"replay-{site}"


class Meters:
    """The meters of some runs in an installation, and an agent that reads them."""

    def __init__(self, stack: Stack, token_file: Path, runs: Sequence[Run]) -> None:
        self._runs = runs
        self._operator = Client(stack.url, token_file.read_text().strip(), timeout_s=120)

    def __enter__(self) -> Meters:
        self._agent_name = f"meters-{uuid.uuid4().hex[:8]}"
        self._operator.post_yaml("/api/v1/fleet/apply", _inventory(self._runs))
        sites = sorted({run.recording for run in self._runs})
        made = self._operator.post("/api/v1/agents", {"name": self._agent_name, "sites": sites})
        self._ids = self._find_ids()
        self._push(self._operator.with_token(made["token"]))
        return self

    def __exit__(self, *_: object) -> None:
        self._operator.close()

    def check(self) -> None:
        """Compare every run with what the API says of its meters."""
        self._wait_until_rolled_up()
        worst = 0.0
        for run in self._runs:
            told = [self._told(run, node) for node in run.times_s]
            assert {part["tier"] for each in told for part in each["tiers"]} == {"minute"}
            used_j = math.fsum(_total(each, "used_j") for each in told)
            error = abs(used_j / run.energy_j - 1)
            assert error < TOLERANCE, (run.recording, run.run_id, run.meter, used_j, run.energy_j)
            assert sum(_total(each, "readings") for each in told) == run.readings
            assert sum(_total(each, "suspect") for each in told) == run.suspect
            worst = max(worst, error)
            self._check_odd_ones_are_kept(run)
        print(json.dumps({"runs": len(self._runs), "worst_error_of_energy": worst}))

    def _check_odd_ones_are_kept(self, run: Run) -> None:
        """Compare zero and negative readings with those of the file, one by one."""
        for node, powers in run.powers_w.items():
            odd = sorted(power for power in powers if power <= 0)
            if odd:
                found = self._series(run, node, "power_w", tier="raw", points="5000")
                watts = [watt for watt in found["columns"]["power_w"] if watt is not None]
                assert sorted(watt for watt in watts if watt <= 0) == odd

    def _told(self, run: Run, node: str) -> Any:
        return self._series(run, node, "used_j,readings,suspect", tier="minute", points="5000")

    def _series(self, run: Run, node: str, fields: str, **options: str) -> Any:
        span = {"from": str(run.start_s), "to": str(run.end_s)}
        thing = {"kind": "meter", "id": str(self._ids[run.meter_of(node)]), "fields": fields}
        return self._operator.get("/api/v1/series", span | thing | options)

    def _wait_until_rolled_up(self) -> None:
        # The oldest minutes come first.
        last = max(run.end_s for run in self._runs)
        newest = [run for run in self._runs if run.end_s == last]
        end = time.monotonic() + _PATIENCE_S
        while not all(self._is_rolled_up(run) for run in newest):
            assert time.monotonic() < end, "the readings are not rolled up"
            time.sleep(_POLL_S)

    def _is_rolled_up(self, run: Run) -> bool:
        told = [self._told(run, node) for node in run.times_s]
        # Until minutes are complete, readings themselves fill the rest of the answer.
        are_minutes = all(part["tier"] == "minute" for each in told for part in each["tiers"])
        return are_minutes and sum(_total(each, "readings") for each in told) >= run.readings

    def _find_ids(self) -> dict[str, int]:
        found: dict[str, int] = {}
        url: str | None = "/api/v1/meters"
        params: dict[str, str] | None = {"page_size": "500"}
        while url:
            page = self._operator.get(url, params)
            found |= {meter["name"]: meter["id"] for meter in page["results"]}
            following = page["next"]
            url = following and following.removeprefix(self._operator.server_url)
            params = None
        return found

    def _push(self, agent: Client) -> None:
        """Send all readings in order of time, and wait until they are durable."""
        rows = sorted((row for run in self._runs for row in run.columns()), key=lambda row: row[1])
        boot_id, last = uuid.uuid4().hex, math.ceil(len(rows) / _BATCH_ROWS)
        for seq in range(1, last + 1):
            part = rows[(seq - 1) * _BATCH_ROWS : seq * _BATCH_ROWS]
            meters, times, powers = zip(*part, strict=True)
            agent.push(
                TelemetryBatch(
                    agent=self._agent_name,
                    boot_id=boot_id,
                    seq=seq,
                    oldest_seq=1,
                    sent_at=time.time(),
                    meters=MeterColumns(ts=list(times), meter=list(meters), power_w=list(powers)),
                ),
                timeout_s=60,
            )
        end = time.monotonic() + _PATIENCE_S
        while agent.position(boot_id).durable_seq < last:
            assert time.monotonic() < end, "not all readings are durable"
            time.sleep(0.05)


def _total(answer: Any, field: str) -> float:
    return math.fsum(value for value in answer["columns"][field] if value is not None)


def _inventory(runs: Sequence[Run]) -> str:
    """Return a site for each recording, and on its one rack the meters of all nodes."""
    names: dict[str, set[str]] = defaultdict(set)
    for run in runs:
        names[run.recording].update(run.meter_of(node) for node in run.times_s)
    sites, meters = [], []
    for recording, found in names.items():
        sites.append({"name": recording, "racks": [{"name": "R1", "budget_w": 1e6}]})
        meters += [
            {"name": name, "kind": "power", "site": recording, "rack": "R1"} for name in found
        ]
    # JSON is YAML.
    return json.dumps({"sites": sites, "meters": meters})
