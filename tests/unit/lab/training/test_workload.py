from dataclasses import replace

import numpy as np
import pytest

from lab.training import JOB_KINDS, Pool, Workload


def make_workload(
    *,
    nodes: int = 32,
    occupancy: float = 1.0,
    mix: tuple[tuple[str, float], ...] = (("train", 1.0),),
) -> Workload:
    pool = Pool(np.arange(nodes), occupancy, mix)
    return Workload([pool], nodes, np.random.default_rng(3))


def test_a_filled_pool_is_full() -> None:
    workload = make_workload()
    workload.fill(0.0)
    assert (workload.job_of_node > 0).all()


def test_jobs_leave_the_share_of_the_pool_that_is_to_stay_free() -> None:
    workload = make_workload(occupancy=0.75)
    workload.fill(0.0)
    assert (workload.job_of_node == 0).sum() == 8


def test_each_job_has_a_name_of_its_own() -> None:
    workload = make_workload(mix=(("finetune", 1.0),))
    workload.fill(0.0)
    names = [workload.names[slot] for slot in set(workload.job_of_node.tolist())]
    assert None not in names
    assert len(set(names)) == len(names)


def test_a_gang_ends_whole_and_its_nodes_are_used_again() -> None:
    workload = make_workload(nodes=4)
    workload.fill(0.0)
    slot = int(workload.job_of_node[0])
    gang = workload.job_of_node == slot
    name = workload.names[slot]
    workload.fail(slot, 1.0)
    assert workload.advance(1.0)
    assert not (workload.job_of_node[gang] == slot).any() or workload.names[slot] != name
    for second in range(2, 3600):
        workload.advance(float(second))
    assert (workload.job_of_node > 0).all()
    assert name not in workload.names


def test_the_failure_of_no_job_is_nothing() -> None:
    workload = make_workload()
    workload.fail(0, 0.0)
    workload.advance(0.0)
    assert workload.load(10.0).activity[0] == 0.0


def test_jobs_come_and_go_over_a_day() -> None:
    workload = make_workload(mix=(("finetune", 0.5), ("evaluate", 0.5)))
    workload.fill(0.0)
    first = set(workload.names)
    for minute in range(24 * 60):
        workload.advance(60.0 * minute)
    assert not (set(workload.names) - {None}) & first


def test_a_training_job_warms_up_computes_communicates_and_writes_checkpoints() -> None:
    workload = make_workload(nodes=4)
    workload.advance(0.0)
    slot = int(workload.job_of_node[0])
    assert slot
    loads = [workload.load(float(second)) for second in range(4000)]
    activity = np.array([load.activity[slot] for load in loads])
    assert activity[10] == pytest.approx(0.12)
    low, high = JOB_KINDS["train"].activity
    assert low <= activity.max() <= high
    assert any(load.communicating[slot] for load in loads)
    assert any(load.checkpointing[slot] for load in loads)
    assert not any(load.communicating[slot] & load.checkpointing[slot] for load in loads)


def test_serving_writes_no_checkpoints() -> None:
    workload = make_workload(mix=(("serve", 1.0),))
    workload.fill(0.0)
    assert not any(workload.load(60.0 * m).checkpointing.any() for m in range(600))


def test_the_same_seed_gives_the_same_jobs() -> None:
    a, b = make_workload(), make_workload()
    for workload in (a, b):
        workload.fill(0.0)
        for minute in range(600):
            workload.advance(60.0 * minute)
    assert a.names == b.names
    assert (a.job_of_node == b.job_of_node).all()


def test_slots_are_used_again_the_lowest_first() -> None:
    workload = Workload([], 4, np.random.default_rng(1), tasks=8)

    def begin() -> int | None:
        return workload.begin_task("task", JOB_KINDS["train"], 0.0, nodes=1)

    assert [begin() for _ in range(5)] == [1, 2, 3, 4, 5]
    for slot in (4, 1, 3):
        workload.end_task(slot)
    assert [begin() for _ in range(4)] == [1, 3, 4, 6]
    assert workload.top == 7
    assert [begin() for _ in range(7)] == [7, 8, 9, 10, 11, 12, None]


def test_load_has_a_place_for_each_slot_and_nothing_where_nobody_is() -> None:
    workload = make_workload(nodes=16, occupancy=0.5)
    workload.fill(0.0)
    load = workload.load(500.0)
    used = set(workload.job_of_node.tolist()) - {0}
    assert len(load.activity) == len(workload.names)
    assert set(np.flatnonzero(load.activity).tolist()) == used


def test_evaluations_end_each_span_of_their_kind() -> None:
    kind = replace(
        JOB_KINDS["train"], warmup_s=(10.0, 10.0), comm_share=(0.0, 0.0),
        eval_every_s=(100.0, 100.0), eval_s=(20.0, 20.0), eval_activity=0.33,
    )  # fmt: skip
    workload = Workload([], 1, np.random.default_rng(1), tasks=1)
    slot = workload.begin_task("task", kind, 0.0, nodes=1, activity=0.9)
    activity = [workload.load(10.0 + s).activity[slot] for s in range(300)]
    assert activity == ([0.9] * 80 + [0.33] * 20) * 3


def test_the_first_evaluation_is_where_its_kind_has_it() -> None:
    kind = replace(
        JOB_KINDS["train"], warmup_s=(10.0, 10.0), comm_share=(0.0, 0.0), eval_from_s=150.0,
        eval_every_s=(100.0, 100.0), eval_s=(20.0, 20.0), eval_activity=0.33,
    )  # fmt: skip
    workload = Workload([], 1, np.random.default_rng(1), tasks=1)
    slot = workload.begin_task("task", kind, 0.0, nodes=1, activity=0.9)
    activity = [workload.load(10.0 + s).activity[slot] for s in range(350)]
    assert activity == [0.9] * 150 + ([0.9] * 80 + [0.33] * 20) * 2


def test_a_job_stands_still_before_its_first_evaluation_alone() -> None:
    kind = replace(
        JOB_KINDS["train"], warmup_s=(10.0, 10.0), comm_share=(0.0, 0.0), eval_pause_s=15.0,
        eval_every_s=(100.0, 100.0), eval_s=(20.0, 20.0), eval_activity=0.33,
    )  # fmt: skip
    workload = Workload([], 1, np.random.default_rng(1), tasks=1)
    slot = workload.begin_task("task", kind, 0.0, nodes=1, activity=0.9)
    activity = [workload.load(10.0 + s).activity[slot] for s in range(200)]
    first = [0.9] * 65 + [kind.warmup_activity] * 15 + [0.33] * 20
    assert activity == first + [0.9] * 80 + [0.33] * 20


def test_what_jobs_do_is_found_out_again_no_later_than_it_changes() -> None:
    """One workload is asked as it comes, the other finds out anew what each job does each time."""
    mix = (("train", 0.4), ("finetune", 0.3), ("serve", 0.3))
    kept, renewed = make_workload(mix=mix), make_workload(mix=mix)
    for workload in (kept, renewed):
        workload.fill(0.0)
    saved = 0
    for second in range(1, 2400):
        for workload in (kept, renewed):
            workload.advance(float(second))
        for slot in range(renewed.top):
            renewed._stages.renew(slot)
        ours, theirs = kept.load(float(second)), renewed.load(float(second))
        for name in ("activity", "behind", "communicating", "checkpointing"):
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name), str(second))
        saved += int(ours.checkpointing.sum())
    assert saved > 20


def test_nodes_that_are_ahead_exchange_no_longer_than_the_others() -> None:
    """Also where an exchange is shorter than the nodes of its gang are apart."""
    kind = replace(
        JOB_KINDS["train"], warmup_s=(0.0, 0.0), period_s=(8.0, 8.0), comm_share=(0.05, 0.05)
    )
    workload = Workload([], 4, np.random.default_rng(1), tasks=1)
    slot = workload.begin_task("task", kind, 0.0, nodes=4, activity=0.9)
    behind = np.array([workload.load(8.0 + step / 100.0).behind[slot] for step in range(800)])
    np.testing.assert_allclose((behind < 0.9).mean(axis=0), 0.05, atol=0.003)
