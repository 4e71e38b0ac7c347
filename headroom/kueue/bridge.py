"""The loop of the bridge: look at the cluster, tell the server, carry out what it wants.

Nothing is kept that a restart would miss. Under which lease a workload may run stands in its
``podSetUpdates`` and on its pods, which nodes that are in labels of nodes. What is decided of a
workload is applied to it only as it was seen: where it has changed meanwhile it is looked at again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import msgspec

from headroom.errors import HeadroomError
from headroom.kueue import names, reading, writing
from headroom.kueue.api import Api, ApiError, Conflict, Document, Missing
from headroom.kueue.leading import Leader, Leading
from headroom.kueue.parameters import BadParameters
from headroom.kueue.reading import Check
from headroom.kueue.seen import KINDS, Seen
from headroom.kueue.watching import Key, Store, Watcher
from headroom.schedulers.comments import Comments
from headroom.schedulers.contract import (
    Directives,
    JobOrder,
    JobState,
    NodeOrder,
    SchedulerKind,
    SchedulerOrders,
    Wait,
    WantedOfJob,
    WhenAway,
)
from headroom.schedulers.rounds import NewsServer, OrderListener, keep_going
from headroom.schedulers.telling import Telling

__all__ = ["Bridge", "BridgeSettings", "Leading", "LetGo", "let_all_go"]

logger = logging.getLogger(__name__)

_ADMITTED = "admitted under the lease {lease}"
_WITHOUT = "Headroom is away: admitted without it"
#: Rounds follow what is seen at once, but not more often than this, s.
_AT_LEAST_S = 0.1


@dataclass(frozen=True, kw_only=True)
class BridgeSettings:
    """Which cluster, by its name on the server, and who of several bridges this is."""

    name: str
    identity: str
    leading: Leading = field(default_factory=Leading)
    poll_s: float = 1.0
    comments_per_s: int = 50


class Bridge:
    """Between one API server and one server. :meth:`step` does one round."""

    def __init__(
        self,
        settings: BridgeSettings,
        server: NewsServer,
        api: Api,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings, self._server, self._api, self._clock = settings, server, api, clock
        self._wake = threading.Event()
        self._stores = {kind: Store(self._wake.set) for kind in KINDS}
        self.watchers = {
            kind: Watcher(api, kind, self._stores[kind], fields=fields)
            for kind, fields in KINDS.items()
        }
        self._leader = Leader(api, settings.leading, settings.identity)
        self._seen = Seen(self._stores)
        self._begin()
        self.stop = threading.Event()

    def _begin(self) -> None:
        """Begin a life as leader: what another has told meanwhile is not known."""
        self._telling = Telling(SchedulerKind.KUEUE, self._clock)
        self._comments = Comments(int(self._settings.comments_per_s * self._settings.poll_s))
        #: how long jobs wait yet, and what their owners read of it
        self._waits: dict[str, tuple[Wait, str]] = {}
        self._is_heard, self._leads = False, False

    def start(self) -> None:
        """Begin to watch the cluster."""
        for watcher in self.watchers.values():
            watcher.start()

    def end(self) -> None:
        """Watch no more, and let another lead."""
        for watcher in self.watchers.values():
            watcher.stop()
        self._leader.let_go()

    def join(self, timeout_s: float) -> None:
        """Wait until nothing of it watches any more."""
        for watcher in self.watchers.values():
            watcher.join(timeout_s)

    def run(self) -> None:
        """Do rounds until :attr:`stop` is set."""
        self.start()
        OrderListener(self._server, self._settings.name, self.stop, self._wake).start()
        keep_going(self.step, self.stop, self._pause, self._settings.poll_s)
        self.end()

    def _pause(self, seconds: float) -> None:
        self.stop.wait(_AT_LEAST_S)
        if self._wake.wait(max(seconds - _AT_LEAST_S, 0.0)):
            self._wake.clear()

    def step(self) -> bool:
        """Look, tell, obey, once, if this bridge leads; return whether something was done."""
        if not self._leader.look() or not self._seen.is_whole:
            if self._leads:
                self._begin()
            return False
        self._leads = True
        seen = self._seen
        seen.refresh()
        self._sweep()
        self._take_up()
        report = self._telling.report(
            seen.jobs, seen.nodes, version="", when_away=seen.view.usual.on_silence
        )
        try:
            orders = self._server.scheduler(self._settings.name, report)
        except HeadroomError as error:
            self._without_server(error)
            return False
        self._telling.heard(report)
        self._is_heard = True
        self._comments.keep(seen.jobs)
        self._say_active("")
        if orders.resync:
            self._telling.begin_anew()
            return True
        return self._obey(orders)

    # --- Checks -----------------------------------------------------------------------------------

    def _say_active(self, away: str) -> None:
        """Say of each of our checks whether it works. Kueue stops queues of those that do not."""
        for name, parameters in self._seen.checks.items():
            document = self._seen.check(name)
            if document is None:
                continue
            if isinstance(parameters, BadParameters):
                holds, reason, message = False, "BadParameters", str(parameters)
            elif away and parameters.on_silence is WhenAway.CLOSED:
                holds, reason, message = False, "HeadroomAway", away
            else:
                holds, reason, message = True, "Active", "Headroom admits workloads"
            self._say(document, "Active", holds, reason, message)

    def _say(self, document: Document, kind: str, holds: bool, reason: str, message: str) -> None:
        new = writing.condition(
            document, kind, holds=holds, reason=reason, message=message, now=self._clock()
        )
        if new is not None:
            self._put(writing.with_condition(document, new), status=True)

    def _say_of_places(self, disagreements: list[str] | None) -> None:
        if disagreements is None:
            return
        for text in disagreements:
            logger.warning("the inventory stands: %s", text)
        holds = not disagreements
        message = "\n".join(disagreements) or "labels of nodes say what the inventory says"
        for document in self._seen.parameters():
            reason = "Agrees" if holds else "Disagrees"
            document = {"kind": "HeadroomCheck", **document}
            self._say(document, names.CONDITION_AGREES, holds, reason, message)

    # --- What needs no server ---------------------------------------------------------------------

    def _sweep(self) -> None:
        """Take labels of leases that are over off their nodes."""
        for name, labels in self._seen.labels_over().items():
            self._try(partial(self._label, name, dict.fromkeys(labels)))

    def _take_up(self) -> None:
        """Evict workloads whose nodes have gone: their pods would wait for them for good."""
        for ref, why in self._seen.stranded.items():
            workload = self._seen.workload(ref)
            check = reading.check_of(workload, self._seen.view.checks) if workload else None
            if workload is not None and check is not None and check.state == "Ready":
                self._check(workload, check, "Retry", f"it is placed anew: {why}")

    def _without_server(self, error: HeadroomError) -> None:
        silent_s = self._telling.silent_s
        usual = self._seen.view.usual
        logger.warning("the server was not heard for %.0f s: %s", silent_s, error)
        if silent_s < usual.away_seconds:
            return
        self._say_active(f"Headroom was not heard since {writing.stamp(self._clock() - silent_s)}")
        for ref, job in self._seen.jobs.items():
            if job.state is JobState.HELD:
                workload, check = self._held(ref)
                if workload and check and check.parameters.on_silence is WhenAway.OPEN:
                    self._check(workload, check, "Ready", _WITHOUT)

    # --- Obeying ----------------------------------------------------------------------------------

    def _obey(self, orders: SchedulerOrders) -> bool:
        done = [self._do(order) for order in orders.jobs]
        done += [self._drain(order) for order in orders.nodes]
        done += [self._direct(ref, each) for ref, each in orders.directives.items()]
        ordered = {order.ref for order in orders.jobs}
        for ref, wait in orders.waits.items():
            self._waits[ref] = wait, orders.comments.get(ref, "it has to wait")
        self._give_back(ordered)
        self._comment(orders.comments, ordered)
        self._say_of_places(orders.disagreements)
        return any(done)

    def _do(self, order: JobOrder) -> bool:
        """Carry out what is wanted of a job; return whether anything was written."""
        job = self._seen.jobs.get(order.ref)
        workload = self._seen.workload(order.ref)
        # What has changed since is told first: the next answer is about what is now.
        if job is None or workload is None or job.restarts != order.restarts:
            return False
        check = reading.check_of(workload, self._seen.view.checks)
        match order.wanted, job.state:
            case WantedOfJob.CANCEL, _:
                return self._cancel(workload, order.why)
            case WantedOfJob.RUN, JobState.HELD if check is not None:
                return self._run(workload, check, order)
            case WantedOfJob.HOLD, JobState.RELEASED if check is not None:
                return self._check(workload, check, "Pending", "it did not start in time")
            case WantedOfJob.EVICT, JobState.RUNNING | JobState.RELEASED if check is not None:
                # Kueue takes its time; asked twice it would begin it anew.
                return check.state != "Retry" and self._check(
                    workload, check, "Retry", f"it gives way: {order.why}"
                )
        return False

    def _run(self, workload: Document, check: Check, order: JobOrder) -> bool:
        """Have the nodes of a lease be found by its pods, then let Kueue admit the workload."""
        nodes = [self._kubernetes_name(node) for node in order.nodes]
        missing = [name for name in nodes if name not in self._seen.view.nodes.documents]
        if missing:
            logger.warning("%s: the cluster has no node %s", order.ref, ", ".join(missing))
            return False
        labels, are_ours = writing.selector(order.lease, nodes, self._seen.view.nodes)
        if are_ours and not all(self._try(partial(self._label, name, labels)) for name in nodes):
            return False
        gang = reading.gang_of(workload, check.parameters, self._seen.view)
        updates = writing.pod_set_updates(
            workload, gang, order.lease, order.restarts, labels, check.parameters
        )
        message = f"{_ADMITTED.format(lease=order.lease)} on {', '.join(nodes)}"
        self._waits.pop(order.ref, None)
        self._comments.forget(order.ref)
        return self._check(workload, check, "Ready", message, updates=updates)

    def _kubernetes_name(self, node: str) -> str:
        before, _, after = self._seen.view.usual.node_name.partition("{node}")
        return node.removeprefix(before).removesuffix(after)

    def _give_back(self, ordered: set[str]) -> None:
        """Have workloads that are going to wait give their quota back to others."""
        now = self._clock()
        self._waits = {ref: each for ref, each in self._waits.items() if ref in self._seen.jobs}
        for ref, (wait, text) in self._waits.items():
            workload, check = self._held(ref)
            if workload is None or check is None or ref in ordered:
                continue
            found = writing.refusal(check.parameters, wait, reading.reserved_at(workload), now)
            if found is not None:
                after_s = found.requeue_after_s
                self._check(workload, check, found.state, text, requeue_after_s=after_s)
                self._comments.forget(ref)

    def _held(self, ref: str) -> tuple[Document | None, Check | None]:
        """Return a workload that waits for us, and our check of it."""
        job, workload = self._seen.jobs.get(ref), self._seen.workload(ref)
        if job is None or workload is None or job.state is not JobState.HELD:
            return None, None
        check = reading.check_of(workload, self._seen.view.checks)
        # Written while Kueue still takes the quota back, "Retry" would stay for good.
        is_pending = check is not None and check.state == "Pending"
        return (workload, check) if is_pending and reading.is_reserved(workload) else (None, None)

    def _comment(self, new: Mapping[str, str], ordered: set[str]) -> None:
        held = {ref for ref, job in self._seen.jobs.items() if job.state is JobState.HELD}
        due, settled = self._comments.take({**self._unsaid(), **new}, held - ordered)
        for ref, text in due.items():
            workload, check = self._held(ref)
            if workload is not None and check is not None:
                wrong = reading.wrong_words(workload)
                said = f"; of its annotations was left out: {'; '.join(wrong)}" if wrong else ""
                if not self._check(workload, check, "Pending", f"{text}{said}"):
                    self._comments.forget(ref)
        self._telling.commented(settled)

    def _unsaid(self) -> dict[str, str]:
        """Return what Kueue has written over: an eviction resets what a check says."""
        found = {}
        for ref, (_, text) in self._waits.items():
            _, check = self._held(ref)
            if check is not None and not str(check.written.get("message")).startswith(text):
                found[ref] = text
        return found

    def _check(
        self,
        workload: Document,
        check: Check,
        state: str,
        message: str,
        *,
        updates: list[Document] | None = None,
        requeue_after_s: int | None = None,
    ) -> bool:
        document = writing.of_check(
            workload, check, state, message, self._clock(),
            updates=updates or (), requeue_after_s=requeue_after_s,
        )  # fmt: skip
        return self._put(document, status=True)

    def _cancel(self, workload: Document, why: str) -> bool:
        metadata = workload["metadata"]
        if names.CANCELLED in (metadata.get("annotations") or {}):
            return False
        patch = {
            "metadata": {"annotations": {names.CANCELLED: why or "cancelled in Headroom"}},
            "spec": {"active": False},
        }
        return self._try(
            lambda: self._stores["Workload"].put(
                self._api.merge("Workload", patch, metadata["name"], metadata["namespace"])
            )
        )

    def _direct(self, ref: str, directives: Directives) -> bool:
        """Put directives where the pods of a job find them: in an annotation of each."""
        patch = {"metadata": {"annotations": {names.DIRECTIVES: _json(directives)}}}
        behind = [pod for pod in self._seen.pods_of(ref) if pod.directives_seq < directives.seq]
        done = [self._try(partial(self._annotate, pod.key, patch)) for pod in behind]
        return any(done)

    def _annotate(self, pod: Key, patch: Document) -> None:
        self._stores["Pod"].put(self._api.merge("Pod", patch, pod[1], pod[0]))

    # --- Nodes ------------------------------------------------------------------------------------

    def _drain(self, order: NodeOrder) -> bool:
        """Cordon and taint a node, or undo what of that is ours."""
        name = self._kubernetes_name(order.node)
        node = self._seen.node(name)
        if node is None:
            return False
        patch = writing.taints(node, restricted=bool(order.reason))

        def write() -> None:
            if patch is not None:
                self._api.merge("Node", patch, name)
            self._stores["Node"].put(self._api.apply(writing.cordoned(name, order.reason)))

        return self._try(write)

    def _label(self, name: str, labels: Mapping[str, str | None]) -> None:
        patch = {"metadata": {"labels": dict(labels)}}
        self._stores["Node"].put(self._api.merge("Node", patch, name))

    # --- Writing ----------------------------------------------------------------------------------

    def _put(self, document: Document, *, status: bool = False) -> bool:
        def write() -> None:
            found = self._api.apply(document, status=status)
            self._stores[document["kind"]].put(found)

        return self._try(write)

    def _try(self, write: Callable[[], object]) -> bool:
        """Write, if this bridge still leads; what fails is left to a later round."""
        if not self._leader.leads:
            return False
        try:
            write()
        except (Conflict, Missing) as error:
            # It has changed: it is looked at again.
            logger.debug("not written: %s", error)
            return False
        except ApiError as error:
            logger.warning("not written: %s", error)
            return False
        return True


def _json(directives: Directives) -> str:
    return msgspec.json.encode(directives).decode()


@dataclass(frozen=True)
class LetGo:
    """How much was let go."""

    workloads: int
    nodes: int


def let_all_go(api: Api) -> LetGo:
    """Admit what waits for us, and undo cordons, taints and labels of ours."""
    stores = {kind: Store() for kind in KINDS}
    for kind, fields in KINDS.items():
        stores[kind].replace(api.list(kind, fields=fields)[0])
    seen = Seen(stores)
    seen.refresh()
    now, let = time.time(), 0
    for ref, job in seen.jobs.items():
        workload = seen.workload(ref)
        check = reading.check_of(workload, seen.view.checks) if workload else None
        if workload is None or check is None or job.state is not JobState.HELD:
            continue
        state = writing.of_check(workload, check, "Ready", "Headroom was let go", now)
        # One that has changed, or is gone, is seen by the next call.
        with suppress(Conflict, Missing):
            api.apply(state, status=True)
            let += 1
    marked = 0
    for node in stores["Node"].all():
        marked += _clear(api, node)
    return LetGo(let, marked)


def _clear(api: Api, node: Document) -> bool:
    """Undo what of a node is ours; return whether there was anything."""
    name, metadata = node["metadata"]["name"], node["metadata"]
    labels = {key: None for key in metadata.get("labels") or {} if names.is_lease_label(key)}
    patch = writing.taints(node, restricted=False)
    is_cordoned = names.RESTRICTED in (metadata.get("annotations") or {})
    if patch is not None:
        api.merge("Node", patch, name)
    if is_cordoned:
        api.apply(writing.cordoned(name, ""))
    if labels:
        api.merge("Node", {"metadata": {"labels": labels}}, name)
    return bool(patch or is_cordoned or labels)
