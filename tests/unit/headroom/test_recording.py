from __future__ import annotations

import csv
import gzip
import re
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from headroom.replay.description import MACHINES
from headroom.replay.fleet import make_fleet
from headroom.replay.formats import load
from headroom.replay.recording import (
    JobPoint,
    Recording,
    RecordingError,
    Schedule,
    slug,
    summarize,
)
from tests.data_sets import EXCERPTS, data_set
from tests.unit.headroom.recordings import (
    EVENTS,
    TRAINING,
    WALL,
    make_recording,
    write,
    write_training,
)

#: Power of a node of 8 H100 in three training runs, in every clone.
REAL_NODE = EXCERPTS / "mlperf-train-h100-node-power" / "power_1node_dlrm_dcnv2.csv.gz"


def test_a_training_file_is_one_run_of_one_meter_in_order_of_time(tmp_path: Path) -> None:
    recording = load(write(tmp_path / "power_2node_x.csv.gz", TRAINING))

    assert re.fullmatch("2node-x-[0-9a-f]{6}", recording.title)
    assert recording.hardware is None
    assert recording.runs == ("r1",)
    assert recording.nodes == ("node_2", "node_10")
    assert list(recording.t_s) == [1000.0, 1000.5, 1002.0, 1002.5, 1030.5]
    assert [recording.nodes[i] for i in recording.node] == [
        *("node_2", "node_10", "node_2", "node_10", "node_10"),
    ]
    assert list(recording.power_w) == [100, 1000, -1, 0, 2000]


def test_run_and_meter_can_be_chosen(tmp_path: Path) -> None:
    file = write(tmp_path / "power_2node_x.csv", TRAINING)
    assert list(load(file, meter="dc").power_w) == [90]
    assert list(load(file, run="r2").power_w) == [5, 6]


def test_a_run_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    file = write(tmp_path / "power_2node_x.csv", TRAINING)
    with pytest.raises(RecordingError, match="no run 'r9'; it has r1, r2"):
        load(file, run="r9")
    with pytest.raises(RecordingError, match="no readings of meter 'x'; it has ac, dc"):
        load(file, meter="x")


def test_the_events_beside_it_are_the_jobs_progress(tmp_path: Path) -> None:
    write(tmp_path / "training_events.csv.gz", EVENTS)
    recording = load(write(tmp_path / "power_64node_gpt3.csv.gz", TRAINING))

    assert recording.job == "gpt3-r1"
    assert recording.job_points == (
        JobPoint(t_s=1001.0, step=4194304, step_time_s=10.5),
        JobPoint(t_s=1002.0, step=8388608, loss=2.75),
        JobPoint(t_s=1003.0, step=7, samples_per_s=190.5),
    )


def test_an_accuracy_is_not_a_loss(tmp_path: Path) -> None:
    write(tmp_path / "training_events.csv.gz", EVENTS.replace("gpt3", "resnet"))
    recording = load(write(tmp_path / "power_64node_resnet.csv.gz", TRAINING))
    assert [point.loss for point in recording.job_points] == [None, None]


def test_a_folder_stands_for_its_main_file(tmp_path: Path) -> None:
    write_training(tmp_path)
    recording = load(tmp_path)
    assert recording.title.startswith("64node-gpt3-")
    assert recording.hardware == MACHINES["h100-immersed"]


def test_wall_power_runs_follow_each_other_without_the_days_between(tmp_path: Path) -> None:
    recording = load(write(tmp_path / "wall_power.csv.gz", WALL))

    assert recording.title.startswith("wall-power-")
    assert recording.hardware is None
    assert recording.runs == ("b/Server/run_1", "a/Offline/run_1")
    starts = [t - recording.t_s[0] for t in recording.t_s]
    # 20 s within the run are kept, two days between the runs are not.
    assert starts == pytest.approx([0, 20, 80, 81])
    assert list(recording.power_w) == [3000, -2, 4000, 4001]
    assert load(tmp_path, run="a/Offline/run_1").duration_s == pytest.approx(1)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", r"x\.csv .*has the columns \(none\); known are run_id, meter, node, t_ms"),
        (b"a,b\n1,2\n", r"x\.csv .*has the columns a, b; known .* or model, scenario"),
        (b"run_id,meter,node,t_ms,power_w\n", r"x\.csv has no readings"),
        (b"run_id,meter,node,t_ms,power_w\nr,ac,n,1,abc\n", r"x\.csv, line 2: power_w 'abc'"),
        (b"run_id,meter,node,t_ms,power_w\nr,ac,n,1,nan\n", r"x\.csv, line 2: power_w 'nan'"),
        (b"run_id,meter,node,t_ms,power_w\nr,ac,n,1,2\nr,ac\n", r"x\.csv, line 3: 2 values"),
        (b"model,scenario,phase,t_iso,power_w\na,b,c,noon,1\n", r"line 2: t_iso 'noon'"),
        (b"\xff\xfe\x00binary", r"x\.csv cannot be read as CSV"),
        (gzip.compress(TRAINING.encode(), mtime=0)[:-30], r"x\.csv cannot be read as CSV"),
        (b"\x1f\x8bnot gzip at all", r"x\.csv cannot be read as CSV"),
    ],
)
def test_what_cannot_be_played_is_named(tmp_path: Path, content: bytes, complaint: str) -> None:
    file = tmp_path / "x.csv"
    file.write_bytes(content)
    with pytest.raises(RecordingError, match=complaint):
        load(file)


def test_a_path_or_folder_without_a_recording_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="does not exist"):
        load(tmp_path / "nothing")
    with pytest.raises(RecordingError, match=r"expected is one of power_64node_gpt3\.csv\.gz"):
        load(tmp_path)


def test_events_that_are_no_json_are_named(tmp_path: Path) -> None:
    write(tmp_path / "training_events.csv.gz", EVENTS.replace('""step""', "step"))
    with pytest.raises(RecordingError, match=r"training_events\.csv\.gz, line \d+: .* is no JSON"):
        load(write(tmp_path / "power_64node_gpt3.csv.gz", TRAINING))


def test_a_summary_is_the_trapezoid_between_good_readings_of_each_meter() -> None:
    recording = make_recording(
        [(0, 0, 3600.0), (0, 1, 100.0), (10, 0, 7200.0), (11, 1, -100.0), (20, 0, 0.0)]
    )
    summary = summarize(recording)

    assert summary.readings == 5
    assert summary.energy_kwh == pytest.approx(54_000 / 3.6e6)
    assert (summary.gaps, summary.longest_gap_s) == (1, 11)
    assert summary.non_positive == 2
    assert summarize(recording, 2).energy_kwh == 0


def test_no_energy_is_counted_between_runs(tmp_path: Path) -> None:
    recording = load(write(tmp_path / "wall_power.csv.gz", WALL))
    assert summarize(recording).gaps == 1
    assert summarize(recording).energy_kwh == pytest.approx((4000 + 4001) / 2 / 3.6e6)


def test_the_first_seconds_can_be_cut_out() -> None:
    points = (JobPoint(t_s=1), JobPoint(t_s=9))
    part = make_recording([(0, 0, 1), (5, 0, 2), (6, 0, 3)], points).first(5)
    assert (list(part.power_w), part.job_points) == ([1, 2], points[:1])


def test_what_is_due_follows_the_speed() -> None:
    recording = make_recording([(t, 0, t) for t in range(10)], (JobPoint(t_s=4.5),))
    schedule = Schedule(recording, speed=2, begin_s=1000.0)

    assert not schedule.due(999.0, limit=100)
    first = schedule.due(1000.0, limit=100)
    assert (first.start, first.stop) == (0, 1)
    second = schedule.due(1002.0, limit=100)
    assert (second.start, second.stop) == (1, 5)
    assert not schedule.due(1002.0, limit=100)
    third = schedule.due(1003.0, limit=100)
    assert (third.start, third.stop, third.job_start, third.job_stop) == (5, 7, 0, 1)
    assert schedule.wall_s(9) == 1004.5
    assert schedule.recorded_s(1001) == 2
    assert schedule.recorded_s(2000) == 9
    assert not schedule.done
    schedule.due(1e9, limit=100)
    assert schedule.done


@given(
    gaps=st.lists(st.floats(0, 50), min_size=1, max_size=40),
    job_times=st.lists(st.floats(0, 3000), max_size=10),
    waits=st.lists(st.floats(0, 20), max_size=20),
    speed=st.floats(0.1, 1000),
    limit=st.integers(1, 7),
)
def test_everything_is_handed_out_once_in_order_and_never_early(
    gaps: list[float], job_times: list[float], waits: list[float], speed: float, limit: int
) -> None:
    times = [sum(gaps[: i + 1]) for i in range(len(gaps))]
    points = tuple(JobPoint(t_s=t) for t in sorted(job_times))
    recording = make_recording([(t, 0, 1) for t in times], points)
    schedule = Schedule(recording, speed=speed, begin_s=50.0)
    now, readings, jobs = 50.0, 0, 0
    for wait in [*waits, 1e7]:
        now += wait
        while span := schedule.due(now, limit=limit):
            assert (span.start, span.job_start) == (readings, jobs)
            assert span.stop - span.start <= limit
            readings, jobs = span.stop, span.job_stop
            due = now + 1e-6 * now
            assert all(schedule.wall_s(t) <= due for t in times[span.start : span.stop])
            assert all(
                schedule.wall_s(p.t_s) <= due for p in points[span.job_start : span.job_stop]
            )
    assert (readings, jobs) == (len(times), len(points))
    assert schedule.done


def test_names_are_fit_for_an_inventory() -> None:
    assert slug("64node_GPT3 (2)") == "64node-gpt3-2"


@pytest.mark.parametrize("meter", ["ac", "dc"])
def test_a_real_series_is_read_as_it_was_published(meter: str) -> None:
    with gzip.open(REAL_NODE, "rt") as file:
        run, *_ = rows = [row for row in csv.DictReader(file) if row["meter"] == meter]
    published = [row for row in rows if row["run_id"] == run["run_id"]]
    t_s = np.array([int(row["t_ms"]) for row in published]) / 1000.0
    power_w = np.array([float(row["power_w"]) for row in published])

    recording = load(REAL_NODE, meter=meter)
    summary = summarize(recording)

    assert (len(recording), recording.nodes, recording.runs) == (178, ("node_0",), (run["run_id"],))
    assert np.allclose(recording.t_s, t_s)
    assert np.allclose(recording.power_w, power_w)
    energy_kwh = float(np.trapezoid(power_w, t_s)) / 3.6e6
    assert summary.energy_kwh == pytest.approx(energy_kwh, rel=0.01)
    assert (summary.gaps, summary.non_positive) == (0, 0)


@pytest.fixture(scope="module")
def published_training() -> Recording:
    """The published training run, whose four hundred thousand lines are read once."""
    return load(data_set("mlperf-train-h100-node-power"))


def test_the_published_training_run_is_read_whole(published_training: Recording) -> None:
    recording = published_training
    summary = summarize(recording)
    assert (len(recording), len(recording.nodes)) == (108_916, 64)
    # Mean 6,848 W over 64 nodes and 3,412 s.
    assert summary.energy_kwh == pytest.approx(6.8477 * 64 * 3412.4 / 3600, rel=2e-3)
    losses = [point.loss for point in recording.job_points if point.loss is not None]
    assert losses[0] == pytest.approx(2.7506, abs=1e-4)
    assert losses[-1] < 2.69


def test_faults_of_the_published_recordings_are_kept() -> None:
    wall = load(data_set("mlperf-inference-h200-wall-power"))
    assert (len(wall), len(wall.runs), summarize(wall).non_positive) == (57_860, 42, 10)
    folder = data_set("mlperf-train-h100-node-power")
    run = "5730-240516232429153071029_8"
    faulty = load(folder / "power_64node_llama2_70b_lora.csv.gz", run=run, meter="dc")
    assert summarize(faulty).non_positive == 2
    assert summarize(load(folder / "power_8node_resnet.csv.gz")).gaps == 22


# --- What a recording says of itself ----------------------------------------------------------

SMI = """timestamp, index, name, power.draw [W]
2024/06/01 12:00:00.100, 0, NVIDIA B200, 700.50 W
2024/06/01 12:00:00.100, 1, NVIDIA B200, 650.00 W
2024/06/01 12:00:01.100, 0, NVIDIA B200, [N/A]
2024/06/01 12:00:01.100, 1, NVIDIA B200, 651.00 W
"""
B200 = """
hardware: {gpu_model: B200-180GB, gpu_rated_w: 1000, node_rated_w: 2400, gpus_per_node: 2}
columns: {time: timestamp, power: "power.draw [W]", gpu: index}
"""


def test_two_recordings_never_share_a_site(tmp_path: Path) -> None:
    sites = set()
    for place, text in (("a", WALL), ("b", WALL.replace("4001", "4002"))):
        (tmp_path / place).mkdir()
        file = write(tmp_path / place / "wall_power.csv.gz", text)
        sites.add(make_fleet(load(file, machine="h200")).site)
    assert len(sites) == 2


def test_a_recording_that_does_not_say_what_it_is_of_makes_no_fleet(tmp_path: Path) -> None:
    for text in (WALL, TRAINING):
        recording = load(write(tmp_path / "x.csv", text))
        with pytest.raises(RecordingError, match=r"--machine \(h100-immersed, h200\)"):
            make_fleet(recording)
    with pytest.raises(RecordingError, match="'a100' is not known; give one of h100-immersed"):
        load(tmp_path / "x.csv", machine="a100")


def test_a_description_says_what_the_columns_and_the_machines_are(tmp_path: Path) -> None:
    file = write(tmp_path / "smi.csv", SMI)
    with pytest.raises(RecordingError, match=r"(?s)timestamp, index, name.*recording\.yaml.*time:"):
        load(file)
    write(tmp_path / "recording.yaml", B200)
    recording = load(file)
    # Of a node the sum of its GPUs; one that says nothing keeps what it said.
    assert list(recording.power_w) == [1350.5, 1351.5]
    fleet = make_fleet(recording)
    assert "B200-180GB" in fleet.inventory
    assert "H100" not in fleet.inventory
    assert "1980" not in fleet.inventory


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("hardware: {gpu_model: X}", "gpu_rated_w"),
        ("machin: h200", "machin"),
        ("columns: {time: t, power: nothing}", "lacks the columns t, nothing"),
        (": :", "cannot be read"),
        ("columns: {time: t}", "give power, or step"),
        ("columns: {time: t, power: p, step: s}", "give power, or step"),
        ("columns: {time: t, step: s, node: n}", "node cannot stand beside step"),
        ("columns: {time: t, power: p, loss: l}", "loss cannot stand beside power"),
        ("columns: {time: t_iso, step: nothing}", "lacks the columns nothing; .* it has model, sc"),
        ("hardware: {gpu_model: X, gpu_rated_w: 700, node_rated_w: 700}", "no more than that"),
    ],
)
def test_a_wrong_description_is_named(tmp_path: Path, text: str, complaint: str) -> None:
    file = write(tmp_path / "x.csv", WALL)
    write(tmp_path / "recording.yaml", text)
    with pytest.raises(RecordingError, match=complaint):
        load(file)


# --- Logs of training steps -------------------------------------------------------------------

STEPS = """run,step,train_time_ms,val_loss,tokens_per_s
a,0,0,10.75,
a,1,24000,,9.5
b,0,5,11,
a,2,200,,nan
a,3,300,N/A,
a,,350,,
"""
STEP_COLUMNS = """
columns: {time: train_time_ms, time_unit: ms, run: run, step: step, loss: val_loss,
          samples_per_s: tokens_per_s}
"""


def test_a_log_of_steps_is_a_job_on_no_machine_and_its_clock_goes_on(tmp_path: Path) -> None:
    file = write(tmp_path / "steps.csv.gz", STEPS)
    write(tmp_path / "recording.yaml", STEP_COLUMNS)
    recording = load(file)
    assert recording.job_points == (
        JobPoint(t_s=0.0, step=0, loss=10.75),
        JobPoint(t_s=24.0, step=1, samples_per_s=9.5),
        # The clock began anew.
        JobPoint(t_s=24.0, step=2),
        JobPoint(t_s=24.1, step=3),
    )
    assert re.fullmatch("steps-[0-9a-f]{6}-a", recording.job)
    assert recording.duration_s == pytest.approx(24.1)
    assert load(file, run="b").job_points == (JobPoint(t_s=0.005, step=0, loss=11),)
    fleet = make_fleet(recording)
    assert (fleet.node_names, fleet.meter_names) == ((), ())
    assert yaml.safe_load(fleet.inventory) == {"sites": [{"name": fleet.site}]}


def test_what_a_loop_printed_is_read_by_a_pattern(tmp_path: Path) -> None:
    printed = (
        "torch 2.9\nstep:1/9 loss:3.5 train_time:700ms\nval\nstep:2/9 loss:nan train_time:900ms\n"
    )
    file = write(tmp_path / "train.log", printed)
    pattern = r"step:(?P<n>\d+)/.* loss:(?P<l>\S+) train_time:(?P<t>\d+)ms"
    words = f"columns: {{time: t, time_unit: ms, step: n, loss: l, pattern: '{pattern}'}}"
    write(tmp_path / "recording.yaml", words)
    points = load(file).job_points
    assert points == (JobPoint(t_s=0.7, step=1, loss=3.5), JobPoint(t_s=0.9, step=2))
    write(tmp_path / "recording.yaml", words.replace("step:(", "iteration:("))
    with pytest.raises(RecordingError, match="has no steps"):
        load(file)
    write(tmp_path / "recording.yaml", words.replace("(?P<l>", "(?P<l"))
    with pytest.raises(RecordingError, match="cannot be read by the pattern"):
        load(file)


def test_published_logs_of_steps_are_read_whole() -> None:
    folder = data_set("nanogpt-h100-steps")
    with gzip.open(folder / "steps.csv.gz", "rt") as lines:
        rows = [row for row in csv.DictReader(lines) if row["run"] == "7"]
    said = Path(__file__).with_name("nanogpt.yaml")
    recording = load(folder / "steps.csv.gz", run="7", description=said)
    assert [point.step for point in recording.job_points] == [int(row["step"]) for row in rows]
    losses = [float(row["val_loss"]) if row["val_loss"] else None for row in rows]
    assert [point.loss for point in recording.job_points] == losses
    times = [point.t_s for point in recording.job_points]
    assert times == sorted(times)


def test_published_recordings_say_by_themselves_what_they_are_of(
    published_training: Recording,
) -> None:
    wall = load(data_set("mlperf-inference-h200-wall-power"))
    assert wall.hardware == MACHINES["h200"]
    assert published_training.hardware == MACHINES["h100-immersed"]
