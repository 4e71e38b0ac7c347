"""What squeue and sinfo say as JSON, of 22.05 and of later versions."""

from __future__ import annotations

from typing import Any

import pytest

from headroom.schedulers.contract import EndedAs, JobState, NodeState
from headroom.slurm import reading

#: As 22.05.8 prints it, without what we do not read.
ROW: dict[str, Any] = {
    "job_id": 7, "array_job_id": 0, "array_task_id": None, "array_task_string": "",
    "het_job_id": 0, "admin_comment": "[headroom hold] waits", "comment": "", "batch_flag": True,
    "requeue": True, "job_state": "PENDING", "state_reason": "JobHeldUser", "priority": 0,
    "node_count": 2, "max_nodes": 2, "name": "wrap", "partition": "gpu", "user_name": "ada",
    "account": "vision", "submit_time": 1795417745, "restart_cnt": 0, "time_limit": 60,
    "tres_per_node": "gres:gpu:h100:4", "dependency": "", "nodes": "",
}  # fmt: skip
RUNS = {
    "job_state": "RUNNING", "priority": 4294901759, "nodes": "n[1-2]", "start_time": 1795417800,
    "admin_comment": '"[headroom lease a-7/job/1 0] admitted on n1,n2"',
    "gres_detail": ["gpu:h100:4(IDX:0-3)", "gpu:h100:4(IDX:0,2,4-5)"],
}  # fmt: skip


def job(**given: Any) -> Any:
    (found,) = reading.jobs_of([{**ROW, **given}])
    return found


def test_a_held_job_is_told_with_what_it_asks_for() -> None:
    found = job()
    assert (found.ref, found.state, found.user, found.account) == ("7", "held", "ada", "vision")
    assert (found.gpus, found.gpus_per_node, found.nodes_wanted) == (8, 4, 2)
    assert (found.model, found.time_limit_s, found.can_requeue) == ("h100", 3600.0, True)
    assert found.min_nodes is None


def test_a_job_that_runs_says_where_and_under_which_lease() -> None:
    found = job(**RUNS)
    assert (found.state, found.lease) == (JobState.RUNNING, "a-7/job/1")
    assert found.gpu_indices == {"n1": [0, 1, 2, 3], "n2": [0, 2, 4, 5]}


def test_a_lease_for_an_earlier_start_is_none() -> None:
    assert job(**RUNS, restart_cnt=1).lease == ""


@pytest.mark.parametrize(
    ("given", "state"),
    [
        ({}, JobState.HELD),
        ({"priority": 5}, JobState.RELEASED),
        ({"admin_comment": "[headroom hold owner]"}, JobState.BLOCKED),
        ({"admin_comment": ""}, JobState.BLOCKED),
        ({"dependency": "afterok:6(unfulfilled)"}, JobState.BLOCKED),
        ({"state_reason": "BeginTime"}, JobState.BLOCKED),
        ({"job_state": "SUSPENDED"}, JobState.SUSPENDED),
        ({"job_state": "COMPLETING"}, JobState.ENDING),
        ({"job_state": ["RUNNING", "COMPLETING"]}, JobState.ENDING),
        ({"job_state": "NODE_FAIL"}, JobState.ENDED),
        ({"job_state": ["PENDING", "REQUEUED"]}, JobState.HELD),
    ],
)
def test_states(given: dict[str, Any], state: JobState) -> None:
    assert job(**given).state is state


@pytest.mark.parametrize(
    ("given", "refs"),
    [
        ({"dependency": "afterok:6(unfulfilled)"}, ["6"]),
        ({"dependency": "afterok:6(unfulfilled),afterok:7(unfulfilled)"}, ["6", "7"]),
        ({"dependency": "afterok:6(unfulfilled)?afterok:7(unfulfilled)"}, []),
        ({"dependency": "afterok:6(unfulfilled),after:7(unfulfilled)"}, []),
        ({"dependency": "afterok:6_*(unfulfilled)"}, []),
        ({"dependency": "afterok:6(failed)"}, []),
        ({"dependency": "singleton(unfulfilled)"}, []),
        ({"dependency": "afterok:6(unfulfilled)", "state_reason": "BeginTime"}, []),
        ({"dependency": "afterok:6(unfulfilled)", "admin_comment": ""}, []),
        ({"dependency": "afterok:6(unfulfilled)", "priority": 5}, []),
        ({}, []),
    ],
)
def test_whose_good_end_is_all_that_a_job_waits_for(given: dict[str, Any], refs: list[str]) -> None:
    assert reading.behind({**ROW, **given}) == refs


@pytest.mark.parametrize(
    ("given", "ended", "code"),
    [
        ({"job_state": "COMPLETED", "exit_code": 0}, EndedAs.SUCCEEDED, 0),
        ({"job_state": "FAILED", "exit_code": 3 << 8}, EndedAs.FAILED, 3),
        ({"job_state": "FAILED", "exit_code": 9}, EndedAs.FAILED, 137),
        (
            {"job_state": ["CANCELLED"], "exit_code": {"return_code": {"set": True, "number": 2}}},
            EndedAs.CANCELLED,
            2,
        ),
        ({"job_state": "TIMEOUT", "exit_code": None}, EndedAs.TIMED_OUT, None),
        ({"job_state": "NODE_FAIL", "exit_code": 0}, EndedAs.LOST, 0),
    ],
)
def test_ends(given: dict[str, Any], ended: EndedAs, code: int | None) -> None:
    found = job(**given)
    assert (found.ended_as, found.exit_code) == (ended, code)


@pytest.mark.parametrize(
    ("asks", "gpus", "per_node"),
    [
        ({"tres_per_node": "gres:gpu:4"}, 8, 4),
        ({"tres_per_node": "gres/gpu:h100:2"}, 4, 2),
        ({"tres_per_node": "gres:gpu"}, 2, 1),
        ({"tres_per_node": "gres:nic:1,gres:gpu:a:1"}, 2, 1),
        ({"tres_per_node": "", "tres_per_job": "gres:gpu:6"}, 6, None),
        ({"tres_per_node": "", "tres_per_task": "gres:gpu:1", "tasks": 3}, 3, None),
    ],
)
def test_what_is_asked_for(asks: dict[str, Any], gpus: int, per_node: int | None) -> None:
    found = job(**asks)
    assert (found.gpus, found.gpus_per_node) == (gpus, per_node)


@pytest.mark.parametrize(
    ("asks", "model"),
    [
        ("gres:gpu:1g.10gb:1", "1g.10gb"),
        ("gres:gpu:a100_3g.20gb:2", "a100_3g.20gb"),
        ("gres:gpu:1g.10gb", "1g.10gb"),
    ],
)
def test_slices_of_gpus_are_asked_for_by_their_profile(asks: str, model: str) -> None:
    found = job(tres_per_node=asks)
    assert (found.model, found.gpus) == (model, 4 if asks.endswith(":2") else 2)


def test_a_job_that_may_run_on_fewer_nodes_says_so() -> None:
    found = job(node_count=2, max_nodes=4)
    assert (found.gpus, found.nodes_wanted, found.min_nodes) == (16, 4, 2)


def test_jobs_without_gpus_and_parts_of_others_are_left_alone() -> None:
    others = [{**ROW, "tres_per_node": "", "admin_comment": ""}, {**ROW, "het_job_id": 3}]
    assert reading.jobs_of(others) == []


@pytest.mark.parametrize(
    ("given", "cores", "mem_bytes"),
    [
        ({"cpus": 8, "memory_per_node": 512}, 4, 512 * 2**20),
        ({"cpus": {"set": True, "number": 5}, "memory_per_cpu": 100}, 3, 300 * 2**20),
        ({}, 1, None),
    ],
)
def test_a_job_without_gpus_that_waits_for_us_is_told_with_its_cores(
    given: dict[str, Any], cores: int, mem_bytes: int | None
) -> None:
    found = job(tres_per_node="", **given)
    assert (found.gpus, found.cores, found.mem_bytes) == (0, cores, mem_bytes)
    assert job(**given).cores == 0


def test_a_job_without_gpus_is_ours_under_a_lease_and_no_more_once_it_was_started_past_us() -> None:
    cpu = {**ROW, **RUNS, "tres_per_node": "", "gres_detail": []}
    assert [each.lease for each in reading.jobs_of([cpu])] == ["a-7/job/1"]
    assert reading.jobs_of([{**cpu, "admin_comment": "[headroom hold] waits"}]) == []


def test_elements_of_an_array_are_told_one_by_one() -> None:
    waits = {**ROW, "array_job_id": 7, "array_task_string": "0-2,7,10-14:2%3"}
    found = [each.ref for each in reading.jobs_of([waits])]
    assert found == ["7_0", "7_1", "7_2", "7_7", "7_10", "7_12", "7_14"]
    assert job(array_job_id=7, array_task_id=4, job_id=9).ref == "7_4"


def test_numbers_of_later_versions_are_read() -> None:
    found = job(
        priority={"set": True, "infinite": False, "number": 0}, node_count={"set": 1, "number": 2},
        time_limit={"set": False, "infinite": True, "number": 0},
        array_job_id={"set": True, "number": 0}, array_task_id={"set": False, "number": 0},
    )  # fmt: skip
    assert (found.state, found.time_limit_s, found.gpus) == (JobState.HELD, None, 8)


@pytest.mark.parametrize(
    ("given", "state", "is_ours"),
    [
        ({"state": "idle", "state_flags": []}, NodeState.UP, False),
        ({"state": "allocated", "state_flags": []}, NodeState.UP, False),
        ({"state": ["IDLE", "DRAIN"], "reason": "gpu 3 is bad"}, NodeState.DRAINED, False),
        (
            {"state": "idle", "state_flags": ["DRAIN"], "reason": "headroom: hot"},
            NodeState.DRAINED,
            True,
        ),
        ({"state": "down", "state_flags": ["NOT_RESPONDING"]}, NodeState.DOWN, False),
        ({"state": "idle", "state_flags": [], "reason": "headroom: hot"}, NodeState.UP, False),
    ],
)
def test_nodes(given: dict[str, Any], state: NodeState, is_ours: bool) -> None:
    found = reading.node_of({"name": "n1", "reason_set_by_user": "root", **given})
    assert (found.state, found.is_ours) == (state, is_ours)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("n1", ["n1"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("a[08-10,12],b-7", ["a08", "a09", "a10", "a12", "b-7"]),
        ("oslo-a01-n[1-2],oslo-a02-n1", ["oslo-a01-n1", "oslo-a01-n2", "oslo-a02-n1"]),
    ],
)
def test_names_of_nodes(text: str, names: list[str]) -> None:
    assert reading.hostnames(text) == names


@pytest.mark.parametrize(
    ("given", "nodes"),
    [
        ({}, []),
        ({"partition": "debug"}, ["n1"]),
        ({"partition": "debug,gpu"}, []),
        ({"features": "hall-a"}, ["n1", "n2"]),
        ({"features": "hall-a&new"}, ["n2"]),
        ({"features": "new|old"}, ["n1", "n2"]),
        ({"features": "[hall-a*1&hall-b*1]"}, []),
        ({"excluded_nodes": "n[2-3]"}, ["n1"]),
        ({"required_nodes": "n[1-2]"}, ["n1", "n2"]),
        ({"required_nodes": "n1"}, []),
        ({"required_nodes": "n[1-2]", "admin_comment": "[headroom lease a/b/1 0]"}, []),
    ],
)
def test_a_job_runs_where_its_partition_features_and_lists_allow(
    given: dict[str, Any], nodes: list[str]
) -> None:
    """One of two nodes by name is no list of where it may run: the other may be any."""
    facts = reading.facts_of(
        [
            {"name": "n1", "partitions": ["gpu", "debug"], "active_features": "hall-a,old"},
            {"name": "n2", "partitions": ["gpu"], "active_features": ["hall-a", "new"]},
            {"name": "n3", "partitions": ["gpu"], "active_features": "hall-b"},
        ]
    )
    assert reading.only_nodes({**ROW, **given}, facts) == nodes
