"""Machines ask for work: to whom it is given, and in which steps a gang starts."""

from __future__ import annotations

import time

import pytest
from pytest_django import DjangoAssertNumQueries

from admission.cycle import dispatch
from admission.executors import fast_path, runners
from admission.executors.models import Runner
from admission.executors.protocol import SignalKind
from admission.executors.registry import executor_of
from tests.builders.agents import make_agent
from tests.integration.admission.executors.conftest import NODES, Machine, Scene
from tests.unit.headroom.jobs.specs import ARTIFACTS, DIGEST, REVISION

pytestmark = pytest.mark.django_db

KEY = "llama/train/1"


def test_a_gang_starts_in_two_steps_and_on_all_of_its_nodes(scene: Scene) -> None:
    scene.released()
    first, second = scene.machines
    answer = first.post()
    assert answer.status_code == 200
    (offer,) = answer.json()["orders"]
    assert offer["wanted"] == "claim"
    assert offer["task"]["command"] == ["python", "train.py"]
    assert offer["task"]["nodes"] == list(NODES)
    assert (offer["task"]["rank"], offer["task"]["gpus"]) == (0, [0, 1, 2, 3])
    first.hold(KEY, "claimed")
    assert first.wanted() == {}  # the other has not claimed it
    second.obey()
    assert second.wanted() == {KEY: "run"}
    assert first.wanted() == {KEY: "run"}


def test_machines_are_told_the_inputs_that_a_phase_declares_and_where_they_lie(
    scene: Scene,
) -> None:
    attempt = scene.attempt()
    job = attempt.phase.job
    job.spec["phases"][0]["artifacts"] = {
        **ARTIFACTS, "code_path": "/srv/llama", "data": {"here": DIGEST, "somewhere": DIGEST},
        "data_paths": {"here": "/data/here"},
    }  # fmt: skip
    job.save(update_fields=["spec"])
    dispatch.dispatch([attempt], scene.now)
    (offer,) = scene.machines[0].orders().values()
    assert offer["task"]["inputs"] == [
        {"name": "image", "digest": DIGEST},
        {"name": "code", "digest": REVISION, "path": "/srv/llama"},
        {"name": "data/here", "digest": DIGEST, "path": "/data/here"},
        {"name": "data/somewhere", "digest": DIGEST},
    ]


def test_an_order_reaches_only_the_machine_that_has_the_node(scene: Scene) -> None:
    scene.released(nodes=NODES[:1])
    assert Machine(scene.fleet.token, "bergen-a02-n1").orders() == {}
    _, stranger = make_agent("stranger")
    answer = Machine(stranger, NODES[0]).post()
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "node_out_of_scope")
    assert answer.json()["error"]["field"] == "nodes[0]"
    assert Machine("hra_nobody", NODES[0]).post().status_code == 401
    assert Machine(scene.fleet.token, "gone").post().json()["error"]["code"] == "unknown_node"


def test_what_one_store_has_claimed_no_other_is_told_to_run(scene: Scene) -> None:
    scene.released(nodes=NODES[:1])
    scene.machines[0].obey()
    assert scene.machines[0].wanted() == {KEY: "run"}
    reinstalled = Machine(scene.fleet.token, NODES[0], store="another")
    assert reinstalled.orders() == {}
    reinstalled.hold(KEY, "claimed")
    assert reinstalled.wanted() == {KEY: "stop"}


def test_machines_say_whether_they_are_simulated(scene: Scene) -> None:
    for said in (False, True, False):
        assert scene.machines[0].post(simulated=said).status_code == 200
        assert runners.simulated_nodes(NODES) == frozenset(NODES[:1] if said else ())


def test_an_answer_that_was_lost_is_given_again(scene: Scene) -> None:
    scene.released(nodes=NODES[:1])
    machine = scene.machines[0]
    assert machine.wanted() == machine.wanted() == {KEY: "claim"}
    machine.hold(KEY, "claimed")
    assert machine.wanted() == machine.wanted() == {KEY: "run"}


def test_an_end_is_told_once_and_then_forgotten(scene: Scene) -> None:
    attempt = scene.running(nodes=NODES[:1])
    machine = scene.machines[0]
    machine.hold(KEY, "ended", outcome="exited", exit_code=3, log_tail="Traceback…")
    assert machine.wanted() == {KEY: "forget"}
    order = scene.gang(attempt).assignments.get()
    assert (order.exit_code, order.log_tail) == (3, "Traceback…")
    machine.hold(KEY, "ended", outcome="exited", exit_code=0)
    assert machine.wanted() == {KEY: "forget"}
    order.refresh_from_db()
    assert order.exit_code == 3


def test_what_the_server_does_not_know_is_stopped(scene: Scene) -> None:
    machine = scene.machines[0]
    machine.hold("ghost/train/1", "running", started_at=time.time())
    assert machine.wanted() == {"ghost/train/1": "stop"}
    machine.hold("ghost/train/1", "ended", outcome="stopped")
    assert machine.wanted() == {"ghost/train/1": "forget"}


def test_one_node_that_fails_has_the_others_stopped(scene: Scene) -> None:
    attempt = scene.running()
    first, second = scene.machines
    first.hold(KEY, "ended", outcome="exited", exit_code=1, text="exit code 1")
    first.orders()
    assert second.orders()[KEY] == {
        "attempt": KEY, "node": NODES[1], "wanted": "stop", "why": f"{NODES[0]}: exit code 1",
    }  # fmt: skip
    second.obey()
    second.obey()
    assert scene.gang(attempt).state == "ended"
    assert scene.gang(attempt).outcome == "failed"


def test_signals_are_told_until_they_were_passed_on(scene: Scene) -> None:
    attempt = scene.running(nodes=NODES[:1])
    machine = scene.machines[0]
    local = executor_of("local")
    seq = local.signal(attempt.key, SignalKind.SET_BATCH_SCALE, scene.now, value=0.75)
    assert machine.orders()[KEY]["signals"] == [
        {"seq": seq, "kind": "set_batch_scale", "value": 0.75}
    ]
    machine.hold(KEY, "running", signals_seen=seq, checkpoint_at=scene.now)
    assert "signals" not in machine.orders()[KEY]
    machine.hold(KEY, "paused", signals_seen=seq, signals_done=seq, done_at_step=120)
    machine.orders()
    (status,) = local.status([attempt.key])
    assert (status.state, status.signals_seen, status.signals_done) == ("paused", seq, seq)
    assert status.done_at_step == 120
    assert status.checkpoint_at == pytest.approx(scene.now, abs=1e-3)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"nodes": []}, "nodes"),
        ({"store": ""}, "store"),
        ({"reports": [{"attempt": "a", "node": NODES[0], "state": "odd"}]}, "reports[0].state"),
        ({"reports": [{"attempt": "a", "node": "x", "state": "claimed"}]}, "reports[0].node"),
        ({"more": 1}, ""),
    ],
)
def test_a_bad_report_is_refused_with_its_field(
    scene: Scene, body: dict[str, object], field: str
) -> None:
    answer = scene.machines[0].post(**body)
    assert answer.status_code == 400
    assert answer.json()["error"].get("field", "") == field


def test_a_machine_that_reports_is_known_to_run_jobs(scene: Scene) -> None:
    scene.machines[0].orders()
    row = Runner.objects.get()
    assert (row.node, row.agent, row.store) == (NODES[0], "small-fleet", f"store-of-{NODES[0]}")


def test_a_report_of_nothing_new_costs_two_queries(
    scene: Scene, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    scene.running(nodes=NODES[:1])
    # Whose token it is and which nodes there are is looked up again only now and then.
    scene.machines[0].orders()
    with django_assert_num_queries(2):
        scene.machines[0].orders()


# --- The fast path --------------------------------------------------------------------------------


def asked(scene: Scene, node: str, token: str = "") -> tuple[str, bytes]:
    """Ask through the gate; "behind" where it was handed on."""
    fast_path.invalidate()
    answered: list[str] = []

    def behind(environ: object, start_response: object) -> list[bytes]:
        answered.append("behind")
        return [b""]

    def start(status: str, headers: object) -> None:
        answered.append(status)

    environ = {
        "PATH_INFO": "/api/v1/work", "REQUEST_METHOD": "GET",
        "QUERY_STRING": f"node={node}&store=s",
        "HTTP_AUTHORIZATION": f"Bearer {token or scene.fleet.token}",
    }  # fmt: skip
    body = b"".join(fast_path.WorkFastPath(behind, lambda seconds: None)(environ, start))
    return answered[0], body


def test_who_has_no_work_is_answered_before_django(scene: Scene) -> None:
    status, body = asked(scene, NODES[0])
    assert status == "200 OK"
    assert b'"orders":[]' in body
    scene.released(nodes=NODES[:1])
    assert asked(scene, NODES[0])[0] == "behind"
    assert asked(scene, NODES[1])[0] == "200 OK"
    assert asked(scene, NODES[0], token="hra_wrong")[0] == "behind"
    assert asked(scene, "gone")[0] == "behind"
