from __future__ import annotations

import gzip
import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.traces import BadRow, JobTrace, TraceError, openb, philly, swf
from tests.data_sets import data_set

PHILLY_HEAD = "time,duration_s,num_gpus,gpu_seconds,vc"
OPENB_HEAD = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
    "creation_time,deletion_time,scheduled_time"
)


def written(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def swf_line(**values: float) -> str:
    names = "job submit wait run procs cpu mem want want_s want_mem status user group"
    names += " exe queue partition before think"
    return " ".join(f"{values.get(name, -1):g}" for name in names.split())


# --- Philly ---------------------------------------------------------------------------------------


def test_philly_is_read_in_order_of_submission_from_its_first_job(tmp_path: Path) -> None:
    path = written(
        tmp_path / "jobs.csv",
        PHILLY_HEAD,
        "2017-09-04 10:31:41,60.0,8,480.0,b",
        "2017-09-04 10:30:41,120.0,1,120.0,a",
    )
    trace = philly.load(path)
    assert trace.submit_s.tolist() == [0.0, 60.0]
    assert trace.runs_s.tolist() == [120.0, 60.0]
    assert trace.gpus.tolist() == [1, 8]
    assert trace.project == ("a", "b")
    assert trace.line.tolist() == [3, 2]
    assert np.isnan([trace.walltime_s, trace.wait_s]).all()
    assert trace.gpu_s.tolist() == [120.0, 480.0]


def test_gzipped_files_and_folders_are_read_too(tmp_path: Path) -> None:
    text = f"{PHILLY_HEAD}\n2017-09-04 10:30:41,120.0,1,120.0,a\n"
    (tmp_path / "jobs.csv.gz").write_bytes(gzip.compress(text.encode()))
    assert len(philly.load(tmp_path)) == len(philly.load(tmp_path / "jobs.csv.gz")) == 1


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ("yesterday,60.0,8,480.0,b", "time"),
        ("2017-09-04 10:31:41,long,8,480.0,b", "duration_s"),
        ("2017-09-04 10:31:41,60.0,8.5,480.0,b", "num_gpus"),
        ("2017-09-04 10:31:41,-60.0,8,480.0,b", "runs_s"),
        ("2017-09-04 10:31:41,inf,8,480.0,b", "runs_s"),
        ("2017-09-04 10:31:41,60.0,0,480.0,b", "gpus"),
        ("2017-09-04 10:31:41", "duration_s"),
    ],
)
def test_bad_rows_are_named_and_counted(tmp_path: Path, row: str, field: str) -> None:
    good = "2017-09-04 10:30:41,120.0,1,120.0,a"
    trace = philly.load(written(tmp_path / "jobs.csv", PHILLY_HEAD, row, good, row))
    assert len(trace) == 1
    assert [(each.line, each.field) for each in trace.bad] == [(2, field), (4, field)]
    assert trace.bad_count == 2
    assert f"2 bad rows, the first: line 2: {field}: " in str(trace)


def test_of_many_bad_rows_the_first_are_kept_and_all_are_counted(tmp_path: Path) -> None:
    good, bad = "2017-09-04 10:30:41,120.0,1,120.0,a", "?,120.0,1,120.0,a"
    trace = philly.load(written(tmp_path / "jobs.csv", PHILLY_HEAD, good, *[bad] * 50))
    assert (len(trace.bad), trace.bad_count) == (20, 50)
    assert trace.bad[0] == BadRow(3, "time", "'?' cannot be read")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no column time, duration_s, num_gpus, vc"),
        ("time,vc\n", "no column duration_s, num_gpus"),
        (f"{PHILLY_HEAD}\n", "no job in it"),
        (f"{PHILLY_HEAD}\n?,1,1,1,a\n", "no job in it; the first bad row is line 2: time"),
    ],
)
def test_a_file_of_another_format_says_what_is_missing(
    tmp_path: Path, text: str, says: str
) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(text)
    with pytest.raises(TraceError, match=says) as error:
        philly.load(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("content", [None, b"\x1f\x8b broken", b"\xff\xfe\x00"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "jobs.csv.gz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TraceError, match=f"{path}: cannot be read"):
        philly.load(path)


def test_the_published_table_is_read_whole() -> None:
    trace = philly.load(data_set("philly-jobs"))
    assert (len(trace), trace.bad_count) == (52_849, 0)
    assert int((trace.gpus > 1).sum()) == 2_661
    assert trace.gpus.max() == 32
    assert len(set(trace.project)) == 12


# --- openb ----------------------------------------------------------------------------------------


def test_openb_has_shares_waits_and_leaves_out_what_holds_no_gpu(tmp_path: Path) -> None:
    path = written(
        tmp_path / "pods.csv",
        OPENB_HEAD,
        "a,1,1,1,460,,LS,Running,100,400,130",
        "b,1,1,8,1000,,BE,Succeeded,200,260,200",
        "c,1,1,0,0,,BE,Succeeded,200,260,200",
        "d,1,1,1,1000,,BE,Pending,300,350,",
        "e,1,1,1,1000,,BE,Failed,300,,310",
    )
    trace = openb.load(path)
    assert trace.gpus.tolist() == [1, 8]
    assert trace.gpu_share.tolist() == [0.46, 1.0]
    assert trace.runs_s.tolist() == [270.0, 60.0]
    assert trace.wait_s.tolist() == [30.0, 0.0]
    assert trace.project == ("LS", "BE")
    assert trace.left_out == {"tasks without a GPU": 1, "tasks that never ran": 1}
    assert [str(each) for each in trace.bad] == ["line 6: deletion_time: '' cannot be read"]


def test_the_published_tasks_are_read_whole() -> None:
    trace = openb.load(data_set("alibaba-openb-jobs"))
    assert trace.left_out == {"tasks without a GPU": 1_088, "tasks that never ran": 861}
    assert len(trace) + sum(trace.left_out.values()) == 8_152
    assert trace.bad_count == 0


# --- SWF ------------------------------------------------------------------------------------------


def test_swf_takes_allocated_processors_else_requested_ones(tmp_path: Path) -> None:
    path = written(
        tmp_path / "log.swf",
        "; Version: 2.2",
        "",
        swf_line(job=1, submit=5, wait=3, run=60, procs=12, want=99, want_s=90, group=4, user=7),
        swf_line(job=2, submit=9, run=30, want=4, user=7),
        swf_line(job=3, submit=9, run=0, want=4, status=5),
    )
    trace = swf.load(path, processors_per_gpu=8)
    assert trace.submit_s.tolist() == [0.0, 4.0]
    assert trace.gpus.tolist() == [2, 1]
    assert trace.walltime_s[0] == 90.0
    assert math.isnan(trace.walltime_s[1])
    assert trace.wait_s[0] == 3.0
    assert math.isnan(trace.wait_s[1])
    assert trace.project == ("group-4", "user-7")
    assert trace.left_out == {"jobs canceled before they began": 1}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("1 2 3", "fields: 3 in place of 18"),
        (swf_line(job=1).replace("1", "x", 1), "fields: could not convert string"),
        (swf_line(job=1, submit=0, procs=4), "runs_s: -1.0 cannot be"),
        (swf_line(job=1, submit=0, run=10), "gpus: -1 cannot be"),
        (swf_line(job=1, submit=0, run=10, procs=math.inf), "gpus: 0 cannot be"),
    ],
)
def test_swf_names_its_bad_lines(tmp_path: Path, line: str, says: str) -> None:
    good = swf_line(job=1, submit=5, run=60, procs=1)
    trace = swf.load(written(tmp_path / "log.swf", good, line))
    assert len(trace) == trace.bad_count == 1
    assert says in str(trace.bad[0])


def test_swf_wants_processors_for_a_gpu(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="processors_per_gpu must be above 0, not 0"):
        swf.load(tmp_path / "log.swf", processors_per_gpu=0)


@given(
    st.lists(
        st.tuples(st.integers(0, 10_000), st.integers(0, 10_000), st.integers(1, 64)), min_size=1
    )
)
def test_swf_reads_back_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, jobs: list[tuple[int, int, int]]
) -> None:
    path = tmp_path_factory.mktemp("swf") / "log.swf"
    trace = swf.load(
        written(path, *(swf_line(job=1, submit=at, run=s, procs=n) for at, s, n in jobs))
    )
    in_order = sorted(jobs, key=lambda job: job[0])
    assert list(zip(trace.submit_s, trace.runs_s, trace.gpus, strict=True)) == [
        (at - in_order[0][0], s, n) for at, s, n in in_order
    ]


# --- Parts of a trace -----------------------------------------------------------------------------


def made(times_s: list[float]) -> JobTrace:
    times = np.sort(np.array(times_s))
    ones = np.ones(len(times))
    return JobTrace(
        name="made",
        line=np.arange(len(times)),
        submit_s=times,
        runs_s=ones,
        gpus=ones.astype(np.int64),
        gpu_share=ones,
        walltime_s=ones,
        wait_s=ones,
        project=("a",) * len(times),
    )


@given(st.lists(st.floats(0.0, 1000.0), max_size=30), st.lists(st.floats(0.0, 1100.0), max_size=4))
def test_parts_of_a_trace_hold_each_job_once(times_s: list[float], cuts_s: list[float]) -> None:
    trace = made(times_s)
    ends = [0.0, *sorted(cuts_s), 2000.0]
    parts = [trace.between(a, b) for a, b in pairwise(ends)]
    lines = [line for part in parts for line in part.line.tolist()]
    assert lines == trace.line.tolist()
    for part, (begin, end) in zip(parts, pairwise(ends), strict=True):
        assert ((part.submit_s >= 0.0) & (part.submit_s <= end - begin)).all()
        assert len(part.project) == len(part)
