from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from lab.training import LossCurve, Progress, SpecError, Stage, TrainingSpec
from lab.training.paths import HEALTHY_RAIL_LATENCY_S, NIC_SHARE, NODE_LATENCY_S
from physics.comm import exposed_communication_s, hierarchical_all_reduce_s, ring_all_reduce_s
from tests.unit.lab.training.running import Run, make_training

GB = 1e9
NODE_WRITES = 4e9


def test_a_job_takes_its_steps_at_full_clocks() -> None:
    run = Run()
    slot = run.begin(make_training(total_steps=300))
    run.go(299)
    assert run.jobs.finished() == []
    assert run.progress(slot).steps == pytest.approx(299.0)
    assert run.progress(slot).done_share == pytest.approx(299 / 300)
    assert run.finish(slot) <= 2.0
    assert run.progress(slot).work_s == pytest.approx(300.0)
    assert run.progress(slot).phase == "done"


def test_a_gang_goes_at_the_pace_of_its_slowest_gpu() -> None:
    run = Run()
    slow, fast = run.begin(make_training()), run.begin(make_training(), 1)
    run.pace[slow] = 0.5
    run.go(100)
    assert run.progress(slow).steps == pytest.approx(50.0)
    assert run.progress(fast).steps == pytest.approx(100.0)


def test_no_clock_shortens_what_memory_takes() -> None:
    """The roofline: lower clocks cost nothing up to where computing takes as long as memory."""
    run = Run()
    slot = run.begin(make_training(base_step_s=0.8, memory_step_s=1.0))
    for pace in (1.0, 0.8):
        run.pace[slot] = pace
        run.go(50)
    assert run.progress(slot).steps == pytest.approx(100.0)
    run.pace[slot] = 0.4
    run.go(100)
    assert run.progress(slot).steps == pytest.approx(150.0)


def test_a_step_takes_what_the_laws_say_of_its_exchange() -> None:
    run = Run(sites=2)
    spec = make_training(collective_bytes=20 * GB, overlap=0.5)
    inside, across = run.begin(spec), run.begin(spec, 1, 2, name="across")
    run.go(10)
    wan = run.network.paths.now.wan_bytes_per_s[across]

    def fabric_s(nodes: int) -> float:
        return float(
            hierarchical_all_reduce_s(
                ranks=8 * nodes,
                ranks_per_node=8,
                message_bytes=20 * GB,
                node_link_bytes_per_s=450e9,
                node_latency_s=NODE_LATENCY_S,
                rails=8,
                link_bytes_per_s=NIC_SHARE * 50e9,
                latency_s=HEALTHY_RAIL_LATENCY_S,
            )
        )

    exposed_s = exposed_communication_s(communication_s=fabric_s(4), compute_s=1.0, overlap=0.5)
    assert run.progress(inside).step_s == pytest.approx(1.0 + float(exposed_s), rel=1e-9)
    between_s = ring_all_reduce_s(
        ranks=2, message_bytes=20 * GB, link_bytes_per_s=wan, latency_s=0.0042
    )
    # Up and down and over the spine, at each site.
    hops_s = 2 * 3 * (2 * 2e-6 + 5e-6)
    waited_s = exposed_communication_s(
        communication_s=fabric_s(4) + between_s + hops_s, compute_s=1.0, overlap=0.5
    )
    assert run.progress(across).step_s == pytest.approx(1.0 + float(waited_s), rel=1e-6)


def test_what_others_and_faults_add_to_an_exchange_is_its_delay() -> None:
    run = Run()
    spec = make_training(collective_bytes=20 * GB)
    slot = run.begin(spec, 0, 1)
    run.go(100)
    healthy = run.progress(slot)
    assert healthy.sync_delay_s == pytest.approx(0.0, abs=1e-12)
    run.twin.conditions.link_capacity_share[0] = 0.1
    run.go(100)
    slowed = run.progress(slot)
    assert slowed.step_s > 1.2 * healthy.step_s
    share = (slowed.steps - healthy.steps) / slowed.steps
    assert slowed.sync_delay_s == pytest.approx(share * (slowed.step_s - healthy.step_s))
    run.twin.conditions.reset()
    run.go(2)
    assert run.progress(slot).step_s == healthy.step_s


def test_a_barrier_waits_for_the_latest_packet() -> None:
    run = Run()
    slot = run.begin(make_training(collective_bytes=GB), 0, 1)
    run.go(2)
    healthy_s = run.progress(slot).step_s
    run.twin.conditions.link_jitter_s[0] = 1e-3
    run.go(2)
    now, alone = run.network.paths.now, run.network.paths.alone
    # A ring of eight nodes has 14 hops, each as late as the mean; and the barrier has the latest.
    hops_s = 14 * (now.rail_latency_s[slot] - alone.rail_latency_s[slot])
    added_s = run.progress(slot).step_s - healthy_s
    assert added_s == pytest.approx(hops_s + now.wait_s[slot])
    assert now.wait_s[slot] > 1e-3


def test_a_gang_that_is_cut_off_stands_still_and_goes_on_afterwards() -> None:
    run = Run(sites=2)
    slot = run.begin(make_training(collective_bytes=GB, activity=1.0), 0, 2)
    run.go(20)
    before = run.progress(slot).steps
    run.twin.conditions.site_isolated[1] = True
    run.go(60)
    assert run.progress(slot).steps == pytest.approx(before)
    assert run.progress(slot).step_s > 1e12
    # It waits for its peers, so it burns what waiting burns.
    load = run.twin.load
    assert load.communicating[slot]
    assert 0.0 < load.activity[slot] < 0.75
    run.twin.conditions.reset()
    run.go(20)
    assert run.progress(slot).steps == pytest.approx(2 * before, rel=0.1)


def test_a_smaller_batch_makes_less_of_each_second() -> None:
    run = Run()
    plain = run.begin(make_training())
    talking = run.begin(make_training(collective_bytes=20 * GB), 1, name="talks")
    run.go(60)
    full = run.progress(plain).steps, run.progress(talking).steps
    for slot in (plain, talking):
        run.twin.workload.scale_task(slot, 0.5)
    run.go(60)
    # Alone, half a batch takes half the time; but what is exchanged stays as much.
    assert run.progress(plain).steps == pytest.approx(2 * full[0])
    assert run.progress(talking).steps < 1.9 * full[1]


def test_a_paused_job_stands_still_without_load_and_loses_nothing() -> None:
    run = Run()
    slot = run.begin(make_training())
    run.go(50)
    run.twin.workload.scale_task(slot, 0.0)
    run.go(50)
    assert run.progress(slot).steps == pytest.approx(50.0)
    assert run.twin.load.activity[slot] == 0.0
    run.twin.workload.scale_task(slot, 1.0)
    run.go(50)
    assert run.progress(slot).steps == pytest.approx(100.0)


def test_a_paused_job_neither_loads_nor_evaluates() -> None:
    run = Run()
    loading = run.begin(make_training(warmup_s=20.0))
    evaluating = run.begin(make_training(eval_every_s=50.0, eval_s=20.0), 1, name="evaluates")
    run.go(10)
    run.twin.workload.scale_task(loading, 0.0)
    run.go(25)
    run.twin.workload.scale_task(evaluating, 0.0)
    run.go(100)
    assert run.progress(loading).stage == "loading"
    run.twin.workload.scale_task(loading, 1.0)
    run.twin.workload.scale_task(evaluating, 1.0)
    run.go(30)
    assert run.progress(loading).steps == pytest.approx(20.0)
    # The evaluation went on where it had stood still.
    assert run.progress(evaluating).steps == pytest.approx(45.0)


def test_a_job_without_gpus_does_nothing() -> None:
    run = Run()
    slot = run.twin.workload.begin_training("waits", make_training(), 0.0, nodes=1)
    assert slot is not None
    run.go(10)
    assert run.progress(slot).steps == 0.0


# --- Saving --------------------------------------------------------------------------------------


def saving(**changes: Any) -> TrainingSpec:
    """Steps of a second; every 100 s it writes for 10 s on four nodes."""
    return make_training(
        **({"checkpoint_bytes": 40 * NODE_WRITES, "checkpoint_interval_s": 100.0} | changes)
    )


def test_what_is_saved_is_what_was_there_when_the_save_began() -> None:
    run = Run()
    slot = run.begin(saving())
    run.go(105)
    assert run.twin.load.checkpointing[slot]
    assert run.progress(slot).durable_steps == 0.0
    assert run.jobs.durable(slot) is None
    run.go(10)
    after = run.progress(slot)
    assert after.durable_steps == pytest.approx(100.0)
    assert after.saves == 1
    # Ten seconds of standing still, and five of new steps that a kill would lose.
    assert after.steps == pytest.approx(105.0)
    assert after.unsaved_s == pytest.approx(5.0)
    assert not run.twin.load.checkpointing[slot]


def test_a_save_that_does_not_block_costs_no_steps() -> None:
    run = Run()
    slot = run.begin(saving(checkpoint_blocks=False))
    run.go(120)
    assert run.progress(slot).steps == pytest.approx(120.0)
    assert run.progress(slot).durable_steps == pytest.approx(100.0)


def test_a_save_that_is_told_of_is_made_now_also_by_a_paused_job() -> None:
    run = Run()
    slot = run.begin(saving(checkpoint_interval_s=1e9))
    run.go(30)
    run.twin.workload.save_task(slot, run.twin.now_s)
    run.twin.workload.scale_task(slot, 0.0)
    run.go(15)
    assert run.progress(slot).durable_steps == pytest.approx(30.0)


def test_crowded_storage_makes_saves_long() -> None:
    run = Run()
    alone = run.finish(run.begin(saving(total_steps=450)))
    crowded = Run()
    crowded.twin.conditions.storage_share[0] = 0.02
    slots = [crowded.begin(saving(total_steps=450), rack, name=f"{rack}") for rack in (0, 1)]
    took_s = crowded.finish(slots[0])
    # Two gangs of four nodes share 4 GB/s instead of having 16 GB/s each.
    assert alone == pytest.approx(450 + 5 * 10, abs=3)
    assert took_s == pytest.approx(450 + 5 * 80, abs=5)


def test_a_kill_loses_what_came_after_the_last_durable_checkpoint() -> None:
    run = Run()
    slot = run.begin(saving())
    run.go(180)
    before, checkpoint = run.progress(slot), run.jobs.durable(slot)
    assert checkpoint is not None
    run.end(slot)
    assert before.unsaved_s == pytest.approx(70.0)
    again = run.begin(saving(), resume=checkpoint, name="job")
    # It reads what it goes on from: ten seconds.
    run.go(9)
    assert run.progress(again).stage == "loading"
    assert run.progress(again).steps == pytest.approx(100.0)
    run.go(51)
    assert run.progress(again).steps == pytest.approx(150.0)
    assert run.progress(again).work_s == pytest.approx(50.0)
    assert run.progress(again).checkpoint_ok


def test_requests_that_fail_are_counted_and_cost_time() -> None:
    run = Run()
    run.twin.conditions.storage_loss[0] = 0.5
    slot = run.begin(saving())
    run.go(121)
    assert run.progress(slot).durable_steps == pytest.approx(100.0)
    # As many requests fail as get through: 160 GB in parts of 64 MiB.
    assert run.progress(slot).retries == pytest.approx(160e9 / 2**26, rel=1e-6)
    assert run.progress(slot).steps == pytest.approx(101.0)


def test_lost_packets_make_for_sends_again() -> None:
    run = Run()
    slot = run.begin(make_training(collective_bytes=GB), 0, 1)
    run.go(50)
    assert run.progress(slot).retries == 0.0
    run.twin.conditions.link_loss[0] = 1e-4
    run.go(50)
    few = run.progress(slot).retries
    assert few > 0.0
    run.twin.conditions.link_loss[0] = 1e-3
    run.go(50)
    assert run.progress(slot).retries > 3 * few


# --- Evaluations and stages ----------------------------------------------------------------------


def test_evaluations_follow_each_other_exactly() -> None:
    """As on 512 H100s: 129.15 s of training, then 12.96 s of evaluation, every 142.1 s."""
    run = Run()
    slot = run.begin(
        make_training(total_steps=10**6, eval_every_s=142.1, eval_s=12.96, eval_activity=0.42)
    )
    evaluating = []
    for _ in range(2 * 4 * 1421):
        run.go(0.5, dt_s=0.5)
        load = run.twin.load
        evaluating.append(load.activity[slot] == 0.42)
        assert not load.communicating[slot] & evaluating[-1]
    begins = np.flatnonzero(np.diff(np.array(evaluating, dtype=int)) == 1) * 0.5
    assert len(begins) == 40
    assert np.diff(begins).mean() == pytest.approx(142.1, abs=0.05)
    assert np.mean(evaluating) == pytest.approx(12.96 / 142.1, rel=0.05)
    assert run.progress(slot).steps == pytest.approx(4 * 1421 * (1 - 12.96 / 142.1), rel=0.01)


def test_a_pipeline_goes_through_its_phases_in_order() -> None:
    run = Run()
    slot = run.begin(
        make_training(
            total_steps=20,
            warmup_s=5.0,
            before=(
                Stage(name="ingestion", storage_bytes=10 * 4 * NODE_WRITES),
                Stage(name="features", seconds=10.0, activity=0.33),
            ),
            after=(
                Stage(name="evaluation", seconds=10.0),
                Stage(name="packaging", seconds=3.0, storage_bytes=5 * 4 * NODE_WRITES),
            ),
        )
    )
    seen = []
    for _ in range(80):
        run.go(1)
        progress = run.progress(slot)
        seen.append(progress.stage or progress.phase)
        if progress.stage == "features":
            assert run.twin.load.activity[slot] == pytest.approx(0.33)
    order = list(dict.fromkeys(seen))
    assert order == [
        "ingestion", "features", "loading", "training", "evaluation", "packaging", "done",
    ]  # fmt: skip
    assert [seen.count(phase) for phase in order[:-1]] == pytest.approx(
        [10, 10, 5, 20, 10, 8], abs=1
    )


def test_stages_before_the_training_are_not_gone_through_again() -> None:
    run = Run()
    spec = make_training(before=(Stage(name="ingestion", seconds=50.0),))
    slot = run.begin(spec)
    run.go(100)
    run.twin.workload.save_task(slot, run.twin.now_s)
    checkpoint = run.jobs.durable(slot)
    assert checkpoint is not None
    run.end(slot)
    again = run.begin(spec, resume=checkpoint)
    run.go(10)
    assert run.progress(again).steps > checkpoint.steps + 8


# --- What is learned, and whether it can be trusted ---------------------------------------------


def test_loss_falls_by_a_power_of_the_steps() -> None:
    run = Run()
    curve = LossCurve(floor=2.0, scale=4.0, exponent=0.5, noise=0.0)
    slot = run.begin(make_training(loss=curve))
    assert run.progress(slot).loss == pytest.approx(6.0)
    run.go(99)
    assert run.progress(slot).loss == pytest.approx(2.4)


def test_noise_of_the_loss_goes_by_seed_and_step_alone() -> None:
    def losses(seed: int, dt_s: float, name: str = "job") -> list[float]:
        run = Run(seed=seed)
        slot = run.begin(make_training(), name=name)
        found = []
        for _ in range(5):
            run.go(40, dt_s=dt_s)
            found.append(run.progress(slot).loss)
        return found

    assert losses(1, 1.0) == pytest.approx(losses(1, 10.0))
    assert losses(1, 1.0) != losses(2, 1.0)
    assert losses(1, 1.0) != losses(1, 1.0, name="other")


def finished(
    repeat: int = 0, *, resumes: bool = False, pace: float = 1.0, **changes: Any
) -> Progress:
    run = Run(repeat=repeat)
    spec = saving(total_steps=250, **changes)
    slot = run.begin(spec)
    run.pace[slot] = pace
    if resumes:
        run.go(150)
        checkpoint = run.jobs.durable(slot)
        run.end(slot)
        slot = run.begin(spec, resume=checkpoint)
        run.pace[slot] = pace
    run.finish(slot)
    return run.progress(slot)


def test_a_good_job_comes_out_the_same_each_time_also_throttled_and_resumed() -> None:
    for pace in (1.0, 0.7):
        first, again = finished(0, pace=pace), finished(1, pace=pace)
        assert first.checksum == again.checksum
        assert first.loss == again.loss
    plain, resumed = finished(), finished(resumes=True)
    assert resumed.checkpoint_ok
    assert resumed.loss == plain.loss


def test_a_job_that_spoils_its_state_on_resuming_is_found_out() -> None:
    good, bad = finished(resumes=True), finished(resumes=True, corrupts_on_resume=True)
    assert finished(corrupts_on_resume=True).checkpoint_ok
    assert good.checkpoint_ok
    assert not bad.checkpoint_ok
    assert bad.loss > good.loss + 0.2


def test_a_nondeterministic_job_differs_between_repetitions_when_it_is_throttled() -> None:
    def outcome(repeat: int, pace: float) -> tuple[str, float]:
        progress = finished(repeat, pace=pace, nondeterministic=True)
        return progress.checksum, progress.loss

    assert outcome(0, 1.0) == outcome(1, 1.0)
    assert outcome(0, 0.7) == outcome(0, 0.7)
    assert outcome(0, 0.7)[0] != outcome(1, 0.7)[0]
    assert outcome(0, 0.7)[1] != outcome(1, 0.7)[1]


def test_a_chain_of_checksums_shows_when_a_link_is_changed() -> None:
    run = Run()
    slot = run.begin(saving())
    run.go(350)
    checkpoint = run.jobs.durable(slot)
    assert checkpoint is not None
    assert len(checkpoint.marks) == 3
    assert checkpoint.is_whole()
    steps, content, link = checkpoint.marks[1]
    marks = (checkpoint.marks[0], (steps, content[::-1], link), checkpoint.marks[2])
    assert not type(checkpoint)(key="job", steps=checkpoint.steps, marks=marks).is_whole()


# --- In general ----------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from([0.5, 1.0, 2.0, 10.0]),
            st.floats(0.2, 1.0),
            st.sampled_from([0.0, 0.5, 1.0]),
            st.floats(0.0, 1.0),
        ),
        min_size=5,
        max_size=40,
    )
)
def test_under_any_conditions_progress_never_outruns_time_nor_goes_back(
    steps: list[tuple[float, float, float, float]],
) -> None:
    run = Run()
    slots = [
        run.begin(saving(checkpoint_interval_s=20.0, collective_bytes=GB), 0, 1, nodes=2, name=name)
        for name in "ab"
    ]
    for dt_s, pace, scale, share in steps:
        run.pace[:] = pace
        run.twin.workload.scale_task(slots[0], scale)
        run.twin.conditions.storage_share[:] = share
        run.twin.conditions.link_capacity_share[:] = share
        before = [run.progress(slot) for slot in slots]
        run.go(dt_s, dt_s=dt_s)
        for slot, was in zip(slots, before, strict=True):
            now = run.progress(slot)
            assert was.steps <= now.steps <= was.steps + dt_s * pace + 1e-9
            assert was.durable_steps <= now.durable_steps <= now.steps
            assert now.retries >= was.retries
            assert now.checkpoint_ok


def test_longer_steps_of_the_clock_come_to_the_same() -> None:
    def took_s(dt_s: float) -> float:
        run = Run()
        slot = run.begin(
            saving(collective_bytes=GB, eval_every_s=120.0, eval_s=10.0, warmup_s=30.0)
        )
        run.pace[slot] = 0.9
        return run.finish(slot, dt_s=dt_s)

    assert took_s(10.0) == pytest.approx(took_s(0.5), rel=0.03)


def test_a_slot_is_used_again_as_new() -> None:
    run = Run()
    first = run.begin(saving(collective_bytes=GB), 0, 1)
    run.twin.conditions.link_loss[0] = 1e-3
    run.pace[first] = 0.5
    run.go(150)
    run.end(first)
    run.twin.conditions.reset()
    run.pace[:] = 1.0
    second = run.begin(make_training(total_steps=10))
    assert second == first
    fresh = run.progress(second)
    assert (fresh.steps, fresh.retries, fresh.sync_delay_s, fresh.saves) == (0.0, 0.0, 0.0, 0)
    run.go(9)
    assert run.progress(second).steps == pytest.approx(9.0)


def test_steps_stray_around_their_mean_and_the_same_way_with_the_same_seed() -> None:
    def times_s(**changes: float) -> NDArray[np.float64]:
        run = Run()
        slot = run.begin(make_training(**changes))
        found = []
        for _ in range(600):
            run.go(1.0)
            found.append(run.progress(slot).step_s)
        return np.array(found)

    strays = times_s(step_stray=0.02)
    assert strays.std() == pytest.approx(0.02, rel=0.15)
    assert strays.mean() == pytest.approx(1.0, abs=0.003)
    assert np.array_equal(strays, times_s(step_stray=0.02))
    assert set(times_s().tolist()) == {1.0}


def test_a_step_that_could_take_no_time_is_refused() -> None:
    with pytest.raises(SpecError, match="step_stray: must be a share from 0 to"):
        make_training(step_stray=0.5)


def test_nodes_of_a_gang_do_not_pause_in_the_same_instant() -> None:
    run = Run()
    slot = run.begin(make_training(collective_bytes=20 * GB, activity=1.0), nodes=4)
    alone = run.begin(make_training(collective_bytes=20 * GB, activity=1.0), 1, nodes=1, name="one")
    apart = []
    for _ in range(200):
        run.go(0.1, dt_s=0.1)
        load = run.twin.workload.load(run.twin.now_s)
        apart.append(len(set(load.behind[slot].tolist())) > 1)
        assert len(set(load.behind[alone].tolist())) == 1, "one node waits for nobody"
    assert any(apart)
    assert not all(apart)


def test_steps_that_hang_take_as_many_times_as_long_and_as_many_as_stated_do() -> None:
    run = Run()
    slot = run.begin(make_training(base_step_s=5.0, total_steps=100_000))
    run.go(10)
    run.jobs.hang_share[slot], run.jobs.hang_times[slot] = 0.1, 3.0
    before = run.progress(slot).steps
    run.go(20_000)
    # One in ten takes 15 s in place of 5, but for the seconds in which it is not noticed yet.
    assert run.progress(slot).steps - before == pytest.approx(20_000 / 6.0, rel=0.05)
    run.jobs.hang_share[slot] = 0.0
    before = run.progress(slot).steps
    run.go(500)
    assert run.progress(slot).steps - before == pytest.approx(100.0, abs=2.0)


def test_a_slot_that_is_used_again_does_not_hang() -> None:
    run = Run()
    slot = run.begin(make_training())
    run.jobs.hang_share[slot], run.jobs.hang_times[slot] = 1.0, 9.0
    run.jobs.end(slot)
    run.jobs.begin(slot, make_training(), key="another")
    assert run.jobs.hang_share[slot] == 0.0
