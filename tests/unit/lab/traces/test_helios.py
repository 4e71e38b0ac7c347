"""Jobs behind the demand of a virtual cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.traces import TraceError, helios

_HEAD = (
    "time,running_gpu_num_noless_8,pending_gpu_num_noless_8,"
    "running_gpu_num_less_8,pending_gpu_num_less_8"
)


def _file(folder: Path, *rows: str) -> Path:
    path = folder / "vc1.csv"
    path.write_text("\n".join([_HEAD, *rows]) + "\n", encoding="utf-8")
    return path


def _at(minute: int, *gpus: int) -> str:
    return f"2020-05-01 00:{minute:02}:00," + ",".join(map(str, gpus))


def test_a_rise_is_a_job_and_a_fall_ends_the_oldest(tmp_path: Path) -> None:
    path = _file(
        tmp_path, _at(0, 16, 0, 0, 0), _at(1, 16, 8, 0, 0), _at(5, 8, 0, 0, 0), _at(9, 0, 0, 0, 0)
    )
    trace = helios.load(path)

    assert trace.gpus.tolist() == [16, 8]
    assert trace.submit_s.tolist() == [0.0, 60.0]
    assert trace.runs_s.tolist() == [300.0, 480.0]
    assert trace.project == ("vc1", "vc1")


def test_whole_nodes_and_smaller_jobs_are_told_apart(tmp_path: Path) -> None:
    path = _file(tmp_path, _at(0, 8, 0, 3, 0), _at(2, 0, 0, 3, 0), _at(3, 0, 0, 0, 0))
    trace = helios.load(path)

    assert sorted(zip(trace.gpus.tolist(), trace.runs_s.tolist(), strict=True)) == [
        (3, 180.0), (8, 120.0),
    ]  # fmt: skip


def test_a_great_rise_is_of_several_jobs(tmp_path: Path) -> None:
    trace = helios.load(_file(tmp_path, _at(0, 100, 0, 0, 0), _at(1, 0, 0, 0, 0)))

    assert trace.gpus.tolist() == [64, 36]


def test_jobs_that_run_at_its_end_are_left_out_and_counted(tmp_path: Path) -> None:
    path = _file(tmp_path, _at(0, 8, 0, 0, 0), _at(1, 0, 0, 2, 0), _at(2, 0, 0, 2, 0))
    trace = helios.load(path)

    assert len(trace) == 1
    assert trace.left_out == {"jobs that run at its end": 1}


def test_a_row_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = _file(tmp_path, _at(0, 8, 0, 0, 0), "2020-05-01 00:01:00,x,0,0,0", _at(2, 0, 0, 0, 0))
    trace = helios.load(path)

    assert trace.bad_count == 1
    assert trace.bad[0].field == "running_gpu_num_noless_8"


def test_a_file_of_another_form_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "vc1.csv"
    path.write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(TraceError):
        helios.load(path)
