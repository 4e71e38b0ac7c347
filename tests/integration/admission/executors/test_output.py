"""Output of jobs: from the command on its machine to those who may read it, and to nobody else."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from accounts.models import User
from accounts.roles import Role
from admission.cycle import dispatch
from admission.executors import fast_path, output, sync
from admission.executors.models import LogPart, NodeAssignment
from admission.jobs.models import Attempt, Job
from headroom.work.contract import WorkOrders, WorkReports
from headroom.work.runner import Runner, RunnerSettings
from telemetry.directory import scope_of
from tests.builders.accounts import bearer, make_token, make_user
from tests.integration.admission.executors.conftest import NODES, Machine, Scene

pytestmark = pytest.mark.django_db

KEY = "llama/train/1"
URL = "/api/v1/jobs/llama/logs"
#: What a terminal, a browser or a database might choke on.
HOSTILE = b"\x1b[2Jwiped\0\r\n\xff\xfe" + "Grüße \N{RIGHT-TO-LEFT OVERRIDE}".encode() + b"</pre>"


def api_client(user: User) -> Client:
    return Client(headers=bearer(make_token(user)))


@dataclass
class Talker:
    """A machine whose part of the job has said ``said``, and that answers who asks for it."""

    machine: Machine
    said: bytes = b""
    first: int = 0
    #: places that it was asked for, None for the end
    asked: list[int | None] = field(default_factory=list)

    def go_round(self) -> None:
        answer = self.machine.post().json()
        parts = [self._part(ask.get("start")) for ask in answer["logs"]]
        if parts:
            answer = self.machine.post(logs=parts)
            assert answer.status_code == 200, answer.content
            assert answer.json()["logs"] == []  # else it would be asked without end

    def _part(self, start: int | None) -> dict[str, Any]:
        self.asked.append(start)
        begin = len(self.said) - 65536 if start is None else start
        begin = min(max(begin, self.first), len(self.said))
        data = base64.b64encode(self.said[begin : begin + 65536]).decode()
        return {
            "attempt": KEY, "node": self.machine.node, "start": begin, "first": self.first,
            "size": len(self.said), "data": data,
        }  # fmt: skip


@pytest.fixture
def ada(scene: Scene) -> User:
    user = make_user(Role.ML_USER, username="ada")
    attempt = scene.running(nodes=NODES[:1])
    attempt.phase.job.project.members.add(user)
    return user


@pytest.fixture
def talker(scene: Scene, ada: User) -> Talker:
    return Talker(scene.machines[0])


@pytest.fixture
def get(ada: User) -> Callable[..., dict[str, Any]]:
    client = api_client(ada)

    def ask(**query: Any) -> dict[str, Any]:
        answer = client.get(URL, query)
        assert answer.status_code == 200, answer.content
        found: dict[str, Any] = answer.json()
        return found

    return ask


Get = Callable[..., dict[str, Any]]


def followed(get: Get, talker: Talker, **query: Any) -> str:
    """Read from the beginning, as ``headroom logs --all`` does, until nothing is pending."""
    text, offset = "", 0
    for _ in range(200):
        found = get(offset=offset, **query)
        text, offset = text + str(found["text"]), found["next_offset"]
        if found["over"] or not (found["pending"] or found["text"]):
            return text
        if found["pending"]:
            talker.go_round()
    raise AssertionError("it never ended")


def test_output_is_asked_of_the_machine_once_somebody_reads_it(get: Get, talker: Talker) -> None:
    talker.said = b"step 1\nstep 2\n"
    talker.go_round()
    assert talker.asked == []  # nobody reads: nothing is sent
    found = get()
    assert (found["text"], found["pending"], found["over"]) == ("", True, False)
    talker.go_round()
    found = get()
    assert (found["text"], found["pending"]) == ("step 1\nstep 2\n", False)
    assert (found["phase"], found["attempt"], found["rank"]) == ("train", 1, 0)
    assert (found["node"], found["ranks"], found["size"]) == (NODES[0], 1, 14)


def test_who_follows_gets_each_byte_once(get: Get, talker: Talker) -> None:
    read, offset = "", 0
    for step in range(5):
        talker.said += f"step {step} é\n".encode()
        NodeAssignment.objects.update(log_told_at=timezone.now() - timedelta(seconds=5))
        get(offset=offset)
        talker.go_round()
        found = get(offset=offset)
        read, offset = read + found["text"], found["next_offset"]
    assert read.encode() == talker.said


def test_a_long_output_is_read_in_bounded_pieces_and_hostile_bytes_lose_nothing(
    get: Get, talker: Talker
) -> None:
    talker.said = HOSTILE * 20 + b"x" * 1_000_000 + b"\nend\n"
    text = followed(get, talker, most=50_000)
    plain = talker.said.decode("utf-8", "backslashreplace")
    assert text == plain
    assert "\\xff\\xfeGr\N{LATIN SMALL LETTER U WITH DIAERESIS}" in text
    assert max(len(bytes(row.data)) for row in LogPart.objects.all()) <= 65536


def test_what_the_machine_has_dropped_is_left_out(get: Get, talker: Talker) -> None:
    talker.said, talker.first = b"0123456789" * 100, 600
    found = get(offset=3)
    assert found["pending"]
    talker.go_round()
    found = get(offset=3)
    assert (found["offset"], found["next_offset"]) == (600, 1000)
    assert found["text"] == "0123456789" * 40


def test_of_each_node_so_much_is_kept_and_in_all(get: Get, talker: Talker, settings: Any) -> None:
    talker.said = bytes(5_000_000)
    followed(get, talker)
    assert LogPart.objects.count() <= 32
    settings.JOB_LOG_STORE_MB = 1
    newest = LogPart.objects.latest("pk").pk
    assert output.prune() > 0
    assert sum(LogPart.objects.values_list("size", flat=True)) <= 2**20
    assert LogPart.objects.filter(pk=newest).exists()
    assert output.prune() == 0


def test_of_a_failure_the_end_is_there_without_anybody_having_asked(
    scene: Scene, get: Get, talker: Talker
) -> None:
    talker.said = b"x" * 100_000 + b"ValueError: no such corpus\n"
    talker.machine.hold(KEY, "ended", outcome="exited", exit_code=3, log_tail="corpus\n")
    talker.go_round()
    scene.reconcile()
    assert Job.objects.get().state == "failed"
    found = get()
    assert found["text"].endswith("ValueError: no such corpus\n")
    assert (found["exit_code"], found["over"], found["pending"]) == (3, True, False)
    assert len(found["text"]) == 65536


def test_while_a_machine_does_not_answer_the_end_that_it_told_is_shown(
    scene: Scene, get: Get, talker: Talker
) -> None:
    talker.machine.hold(KEY, "ended", outcome="exited", exit_code=0, log_tail="saved\n")
    talker.machine.post()
    scene.reconcile()
    found = get()
    assert (found["text"], found["tail"], found["pending"]) == ("", "saved\n", True)
    # It runs nothing any more, and is asked all the same.
    fast_path.invalidate()
    answer = Client(headers={"Authorization": f"Bearer {talker.machine.token}"}).get(
        "/api/v1/work", {"node": NODES[0], "store": talker.machine.store}
    )
    assert [each["attempt"] for each in answer.json()["logs"]] == [KEY]
    # What nobody reads any more is not asked for.
    NodeAssignment.objects.update(log_asked_at=timezone.now() - timedelta(minutes=1))
    assert talker.machine.post().json()["logs"] == []


def test_the_rank_that_failed_first_is_shown_and_any_can_be_chosen(scene: Scene, ada: User) -> None:
    attempt = scene.running("gang")
    first, second = scene.machines
    second.hold(attempt.key, "ended", outcome="exited", exit_code=7, log_tail="out of memory\n")
    second.post()
    first.hold(attempt.key, "ended", outcome="stopped", log_tail="stopped\n")
    first.post()
    scene.reconcile()
    attempt.phase.job.project.members.add(ada)
    client, url = api_client(ada), "/api/v1/jobs/gang/logs"
    found = client.get(url).json()
    assert (found["rank"], found["node"], found["tail"]) == (1, NODES[1], "out of memory\n")
    assert found["failed_ranks"] == [1, 0]
    assert client.get(url, {"rank": "0"}).json()["tail"] == "stopped\n"
    assert client.get(url, {"node": NODES[0]}).json()["rank"] == 0


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"rank": "5"}, "rank"),
        ({"node": "elsewhere\0"}, "node"),
        ({"phase": "trian"}, "phase"),
        ({"attempt": "9"}, "attempt"),
        ({"offset": "-1"}, "offset"),
        ({"offset": "9" * 30}, "offset"),
        ({"most": "1000000000"}, "most"),
        ({"most": "1"}, "most"),
    ],
)
def test_a_wrong_choice_is_refused_with_its_field(
    ada: User, query: dict[str, str], field: str
) -> None:
    answer = api_client(ada).get(URL, query)
    assert answer.status_code == 400
    assert answer.json()["error"]["field"] == field


def test_its_project_and_operators_read_it_and_to_others_it_is_not_there(
    scene: Scene, ada: User
) -> None:
    def status(user: User) -> int:
        return int(api_client(user).get(URL).status_code)

    assert status(ada) == 200
    assert status(make_user(Role.OPERATOR)) == status(make_user(Role.ADMIN)) == 200
    stranger = make_user(Role.ML_USER, username="eve")
    absent = api_client(stranger).get("/api/v1/jobs/no-such-job/logs")
    foreign = api_client(stranger).get(URL)
    assert (foreign.status_code, foreign.json()) == (absent.status_code, absent.json())
    assert status(make_user(Role.VIEWER)) == status(make_user(Role.RESPONDER)) == 404
    assert Client().get(URL).status_code == 401
    less = make_user(Role.VIEWER, username="was-member")
    Job.objects.get(name="llama").project.members.add(less)
    assert status(less) == 404
    # Who may not read it has nothing asked of its machine either.
    NodeAssignment.objects.update(log_asked_from=None)
    status(stranger)
    assert not NodeAssignment.objects.filter(log_asked_from__isnull=False).exists()


def test_a_machine_gives_output_of_its_own_claims_alone(scene: Scene, talker: Talker) -> None:
    talker.said = b"real\n"
    part = talker._part(0)
    other = Machine(talker.machine.token, NODES[0], store="another")
    other.post(logs=[part])
    scene.machines[1].post(logs=[part])
    talker.machine.post(logs=[{**part, "attempt": "ghost/train/1"}])
    assert not LogPart.objects.exists()
    assert talker.machine.post(logs=[{**part, "data": "A" * 100_000}]).status_code == 400
    assert talker.machine.post(logs=[part] * 17).status_code == 400
    talker.machine.post(logs=[part])
    assert bytes(LogPart.objects.get().data) == b"real\n"


def test_before_it_begins_and_after_it_was_dropped_it_says_so(
    scene: Scene, get: Get, ada: User
) -> None:
    attempt = Attempt.objects.get()
    NodeAssignment.objects.all().delete()
    assert (get()["pending"], get()["over"]) == (True, False)
    Attempt.objects.filter(pk=attempt.pk).update(state="ended", ended_at=timezone.now())
    found = get()
    assert (found["over"], found["why"]) == (True, "Output is kept for 7 days after the end.")


# --- A real machine -------------------------------------------------------------------------------


class Direct:
    """The server, without the network between."""

    def __init__(self, token: str) -> None:
        scope = scope_of(token)
        assert scope is not None
        self._scope = scope

    def work(self, node: str, store: str, *, timeout_s: float | None = None) -> WorkOrders:
        return sync.look(self._scope, [node], store, time.time())

    def report_work(self, reports: WorkReports, *, timeout_s: float | None = None) -> WorkOrders:
        return sync.sync(self._scope, reports, time.time())


@pytest.fixture
def runner(scene: Scene, tmp_path: Path) -> Iterator[Runner]:
    settings = RunnerSettings(
        node=NODES[1], folder=tmp_path / "jobs", limits=False, log_bytes=400_000
    )
    runner = Runner(settings, Direct(scene.fleet.token), draw=lambda: 0.5)
    yield runner
    runner.close()


SCRIPT = r"""
i=0; while [ $i -lt 60 ]; do head -c 10000 /dev/zero | tr '\0' x; echo; i=$((i+1)); done
printf 'Gr\303\274\303\237e\n\033[2J\000\377\nValueError: no such corpus\n'; exit 3
"""


def test_output_of_a_real_command_comes_through_though_its_log_was_moved_on(
    scene: Scene, ada: User, runner: Runner
) -> None:
    attempt = scene.attempt("real", nodes=NODES[1:])
    job = attempt.phase.job
    job.spec["phases"][0]["command"] = ["/bin/sh", "-c", SCRIPT]
    job.save(update_fields=["spec"])
    job.project.members.add(ada)
    dispatch.dispatch([attempt], scene.now)
    for _ in range(200):
        runner.round()
        scene.reconcile()
        attempt.refresh_from_db()
        if attempt.state == "ended":
            break
        time.sleep(0.02)
    assert (attempt.outcome, attempt.exit_code) == ("failed", 3)
    for _ in range(3):
        runner.round()
    client, url = api_client(ada), "/api/v1/jobs/real/logs"
    found = client.get(url).json()
    assert found["text"].endswith("x\nGrüße\n\x1b[2J\x00\\xff\nValueError: no such corpus\n")
    assert found["over"]
    # From the beginning, as far as its machine still has it.
    offset, read = 0, ""
    for _ in range(60):
        found = client.get(url, {"offset": offset}).json()
        read, offset = read + found["text"], found["next_offset"]
        if found["over"]:
            break
        runner.round()
    part = NodeAssignment.objects.get(gang__key=attempt.key)
    first, size = part.log_first or 0, part.log_size or 0
    # The byte that is no UTF-8 stands as four characters.
    assert (size, size - first) == (offset, len(read.encode()) - 3)
    assert 200_000 <= size - first <= 400_000
    assert size == 60 * 10_001 + 15 + len("ValueError: no such corpus\n")
