import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime

import numpy as np
import pytest
import yaml

from headroom.client import Unauthorized
from headroom.contracts import TelemetryBatch
from headroom.work.contract import DesiredState, Order, Task
from lab.demo import HISTORY_S, HISTORY_STEP_S, Demo, Settings, Stage, agent_specs
from lab.enroll import AgentSpec, Server, Stopped, enroll
from lab.fleet import inventory_yaml, make_fleet
from lab.twin import Twin, XidLine
from tests.builders.demo import running_demo, until
from tests.unit.lab.fake_server import OPERATOR_TOKEN, FakeServer, serve


def make_server(fake: FakeServer, token: str = OPERATOR_TOKEN) -> Server:
    return Server(fake.url, token, connections=2)


def running(fake: FakeServer, *, sample_s: float = 0.4) -> AbstractContextManager[Demo]:
    """Run a small demo in a thread of its own."""
    return running_demo(make_server(fake), Settings(gpus=128, sample_s=sample_s))


def eventually(condition: Callable[[], bool]) -> None:
    until(condition, 20.0)


def all_stored(fake: FakeServer, demo: Demo, *, batches: int) -> bool:
    names = [source.name for source in demo.sources]
    return bool(names) and all(len(fake.stored(name)) >= batches for name in names)


def gpu_times(batches: list[TelemetryBatch]) -> list[float]:
    return [
        ts
        for batch in batches
        for report in batch.nodes
        if report.gpus is not None
        for ts, gpu in zip(report.gpus.ts, report.gpus.gpu, strict=True)
        if gpu == 0
    ]


def test_there_is_an_agent_for_each_node_and_a_collector_for_each_site() -> None:
    specs = agent_specs(make_fleet(gpus=1536))
    assert len(specs) == 192 + 2
    assert specs[2] == AgentSpec("oslo-a01-n3", nodes=("oslo-a01-n3",))
    assert specs[-1] == AgentSpec("bergen-collector", sites=("bergen",))


def test_in_a_large_fleet_an_agent_stands_for_several_nodes() -> None:
    fleet = make_fleet(gpus=100_000)
    specs = agent_specs(fleet)
    assert len(specs) <= 256 + len(fleet.sites)
    assert [name for spec in specs for name in spec.nodes] == fleet.nodes


def test_it_applies_its_inventory_enrolls_its_agents_and_pushes() -> None:
    with serve() as fake, running(fake) as demo:
        eventually(lambda: all_stored(fake, demo, batches=3))
        (text,) = fake.inventories
        assert {site["name"] for site in yaml.safe_load(text)["sites"]} == {"oslo", "bergen"}
        assert fake.agents["oslo-a01-n1"]["nodes"] == ["oslo-a01-n1"]
        assert fake.agents["oslo-collector"]["sites"] == ["oslo"]
        collected = fake.stored("oslo-collector")[-1]
        assert collected.links is not None
        assert collected.meters is not None


def test_the_first_batch_is_the_last_ten_minutes_and_no_reading_is_of_the_future() -> None:
    with serve() as fake, running(fake) as demo:
        eventually(lambda: all_stored(fake, demo, batches=2))
        times = gpu_times(fake.stored("oslo-a01-n1"))
        count = int(HISTORY_S / HISTORY_STEP_S)
        steps = [b - a for a, b in itertools.pairwise(times[:count])]
        assert steps == pytest.approx([HISTORY_STEP_S] * len(steps), abs=1e-3)
        assert times[0] == pytest.approx(time.time() - HISTORY_S, abs=60.0)
        assert max(times) < time.time() + 0.2
        assert times == sorted(times)


def test_after_a_restart_only_the_gap_is_filled() -> None:
    with serve() as fake:
        heard_at = time.time() - 95.0
        fake.agents["bergen-collector"] = {"number": 1, "token": "hra_old"}
        fake.last_seen_at["bergen-collector"] = datetime.fromtimestamp(heard_at, UTC).isoformat()
        with running(fake) as demo:
            eventually(lambda: all_stored(fake, demo, batches=1))
            first = gpu_times(fake.stored("oslo-a01-n1")[:1])
            assert len(first) == pytest.approx(95.0 / HISTORY_STEP_S, abs=1.5)
            assert first[0] > heard_at - 2.0


def test_jobs_report_their_progress_in_batches_of_their_own() -> None:
    fleet = make_fleet(gpus=64)
    twin = Twin(fleet, seed=3, queued=np.ones(len(fleet.nodes), dtype=bool))
    stage = Stage(twin, inventory_yaml(fleet), agent_specs(fleet))
    settings = Settings(gpus=64, sample_s=0.4, speed=10.0)
    with serve() as fake, running_demo(make_server(fake), settings, stage=stage) as demo:
        eventually(lambda: all_stored(fake, demo, batches=1))
        collector = next(source for source in demo.sources if source.machines is not None)
        assert collector.machines is not None
        node, key = fleet.nodes[0], "llama/train/1"
        task = Task(
            job="llama", phase="train", number=1, command=["train"], rank=0, nodes=[node],
            gpus=list(range(8)), gpus_of_node=8, env={"TWIN_WORK_S": "3000"},
        )  # fmt: skip
        collector.machines.hear(
            [Order(attempt=key, node=node, wanted=DesiredState.CLAIM, task=task)]
        )
        collector.machines.hear([Order(attempt=key, node=node, wanted=DesiredState.RUN)])

        # What it says first is that it has begun.
        def with_losses() -> list[TelemetryBatch]:
            return [each for each in fake.stored(collector.name) if each.jobs and each.jobs.loss]

        eventually(lambda: bool(with_losses()))
        told = with_losses()[0]
        assert told.jobs is not None
        assert told.jobs.job == ["llama"]
        assert told.jobs.step
        assert told.jobs.loss
        assert (told.links, told.meters) == (None, None)


def test_nodes_tell_their_versions_and_a_rack_and_a_node_differ_from_the_rest() -> None:
    fleet = make_fleet(gpus=128)
    with serve() as fake, running(fake) as demo:
        eventually(lambda: all_stored(fake, demo, batches=3))
        told = {
            report.node: report
            for name in fleet.nodes
            for batch in fake.stored(name)
            for report in batch.versions
        }
        # Once, while nothing changes.
        assert sum(len(batch.versions) for batch in fake.stored(fleet.nodes[0])) == 1
    assert set(told) == set(fleet.nodes)
    drivers = [told[node].driver for node in fleet.nodes]
    racks = fleet.rack_of_node.tolist()
    assert {rack for rack, each in zip(racks, drivers, strict=True) if each != drivers[0]} == {1}
    firmware = Counter(told[node].nic_firmware for node in fleet.nodes)
    assert sorted(firmware.values()) == [1, 15]


def test_pushes_are_spread_over_the_sampling_period() -> None:
    with serve() as fake, running(fake, sample_s=1.0) as demo:
        eventually(lambda: all_stored(fake, demo, batches=4))
        phases = {
            round((fake.stored(source.name)[-1].sent_at - source.clock_off_s) % 1.0, 1)
            for source in demo.sources
        }
        assert len(phases) >= 5


def test_nothing_is_lost_or_out_of_order_over_an_outage() -> None:
    with serve() as fake, running(fake) as demo:
        eventually(lambda: all_stored(fake, demo, batches=2))
        fake.down = True
        time.sleep(1.5)
        fake.down = False
        outbox = demo.sources[0].sender.outbox
        held = outbox.last_seq
        eventually(lambda: len(fake.stored(demo.sources[0].name)) >= held)
        assert held > 4
        for source in demo.sources:
            seqs = [batch.seq for batch in fake.stored(source.name)]
            assert seqs == list(range(1, len(seqs) + 1))
            times = gpu_times(fake.stored(source.name))
            assert times == sorted(set(times))


def test_a_server_that_is_not_up_yet_is_waited_for() -> None:
    with serve() as fake:
        fake.down = True
        with running(fake) as demo:
            time.sleep(0.7)
            assert not demo.sources
            fake.down = False
            eventually(lambda: bool(fake.agents))


def test_it_can_be_stopped_while_it_waits_for_the_server() -> None:
    stop = threading.Event()
    stop.set()
    with serve() as fake:
        fake.down = True
        with pytest.raises(Stopped):
            Demo(make_server(fake), Settings(gpus=8), stop=stop).run()


def test_a_token_that_may_not_edit_the_fleet_is_an_error_and_not_retried() -> None:
    with serve() as fake:
        demo = Demo(make_server(fake, "hru_viewer"), Settings(gpus=8), stop=threading.Event())
        with pytest.raises(Unauthorized, match="not an operator"):
            demo.run()
        assert not fake.inventories


def test_agents_are_enrolled_in_chunks_and_their_old_tokens_end() -> None:
    with serve() as fake:
        specs = [AgentSpec(f"node-{i}", nodes=(f"node-{i}",)) for i in range(450)]
        stop = threading.Event()
        first = enroll(make_server(fake).setup, specs, stop=stop)
        second = enroll(make_server(fake).setup, specs, stop=stop)
        assert len(first) == len(second) == 450
        assert not set(first.values()) & set(second.values())


def test_silent_nodes_say_nothing_and_the_others_go_on() -> None:
    with serve() as fake, running(fake) as demo:
        eventually(lambda: all_stored(fake, demo, batches=2))
        demo.twin.silent_until_s[0] = demo.twin.now_s + 3600.0
        time.sleep(1.3)  # until the twin's next step shows it
        before = len(fake.stored("oslo-a01-n1"))
        others = len(fake.stored("oslo-a01-n2"))
        eventually(lambda: len(fake.stored("oslo-a01-n2")) >= others + 3)
        assert len(fake.stored("oslo-a01-n1")) == before


def test_an_xid_error_is_told_once_by_the_agent_of_its_node() -> None:
    with serve() as fake, running(fake) as demo:
        eventually(lambda: all_stored(fake, demo, batches=1))
        demo.twin.xid_log.append(XidLine(demo.twin.now_s, 11, 79))
        node = demo.fleet.nodes[1]

        def told() -> list[tuple[str, int | None, int]]:
            return [
                (report.node, (report.xids.gpu or [None])[0], report.xids.xid[0])
                for source in demo.sources
                for batch in fake.stored(source.name)
                for report in batch.nodes
                if report.xids is not None
            ]

        eventually(lambda: bool(told()))
        already = len(fake.stored(node))
        eventually(lambda: len(fake.stored(node)) >= already + 3)
        assert told() == [(node, 3, 79)]


def test_its_agents_obey_limits_and_tell_of_it() -> None:
    with serve() as fake, running(fake) as demo:
        eventually(lambda: all_stored(fake, demo, batches=1))
        node = demo.fleet.nodes[1]
        fake.limits = [
            {
                "id": "restriction-7",
                "node": node,
                "kind": "power_cap_w",
                "value": 350.0,
                "expires_at": time.time() + 120.0,
            }
        ]

        def told() -> set[tuple[str, float | None]]:
            return {
                (report.limit, report.applied)
                for batch in fake.stored(node)
                for report in batch.limits
            }

        eventually(lambda: told() == {("restriction-7", 350.0)})
        assert demo.twin.power_limit_w.reshape(-1, 8)[1].tolist() == [350.0] * 8
        last = fake.stored(node)[-1].nodes[0].gpus
        assert last is not None
        assert last.power_limit_w == [350.0] * 8
        fake.limits = []
        eventually(lambda: bool((demo.twin.power_limit_w > 350.0).all()))
