"""The RSGI application: granian calls it with headers, and it reads the body or refuses."""

from __future__ import annotations

import asyncio
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog
from django.conf import settings
from django.db import DatabaseError, close_old_connections

from accounts import senders
from admission.jobs.api import posts
from config import garbage
from config.door import answers, bodies, metrics
from config.door.accounting import Bound, Budget, One, Pace, TooMany
from config.door.agents import Agents
from config.door.answers import Answer, Application
from config.door.lanes import Job, Lane, LaneFull, Result, WaitedTooLong
from config.door.orders import Orders, is_for_orders, unknown
from config.door.polls import Polls
from config.door.protocol import ProtocolClosed
from config.door.refusals import Cause, Refused
from config.door.requests import Environ, Readable, Request
from config.door.shells import Shells, is_of_shells
from config.metrics import recorder
from config.requests import log_short
from headroom import heartbeat
from telemetry.ingest import agreeing, batches
from telemetry.ingest.errors import unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from config.door.protocol import HTTPProtocol, Scope
    from telemetry.directory import AgentScope

__all__ = ["Door"]

log = structlog.get_logger(__name__)

#: What may be open at once in this process: requests of one agent, and of all who are no agents.
REQUESTS_PER_AGENT = 8
REQUESTS_OF_OTHERS = 1024
#: Bodies on their way from one address, and from all who are no agents.
BODIES_PER_ADDRESS = 16
BODIES_OF_OTHERS = 256
#: Bodies of everybody that this process holds.
HELD_BYTES = 256 * 2**20
#: A body up to this is read from anybody; a larger one from users who are known, up to that.
SMALL_BODY_BYTES = 64 * 2**10
LARGE_BODY_BYTES = 64 * 2**20
#: No body may take longer than this, however fast it comes.
LONGEST_BODY_S = 60.0
#: A batch that finds its lane idle waits so long for others: a group costs each of them less.
LINGER_S = 0.02
#: So does a submission, for less: each of a group is one client's, that sends its next when it is
#: answered, and comes back within that.
SUBMISSION_LINGER_S = 0.002
#: How often the event loop does its chores.
CHORES_EVERY_S = 1.0
#: A lane hangs whose threads have all been at one job for longer than this.
HANGS_S = 60.0

HEALTH = "/healthz"
_HEALTHY = Answer(
    200,
    [
        ("Content-Type", "text/plain"),
        ("Cache-Control", "max-age=0, no-cache, no-store, must-revalidate, private"),
    ],
    b"ok\n",
)
#: What machines ask that watch this one.
_PROBES = ("/readyz", "/metrics")
#: What open pages ask again and again, and all viewers may share.
_POLLED = ("/live/fleet", "/live/fleet/panel")
#: Where passwords are hashed.
_PASSWORDS = ("/login/", "/password/", "/account/link/", "/admin/login/", "/admin/accounts/user/")
#: Where an identity provider is waited for.
_PROVIDER = ("/login/sign-on/", "/login/callback/")


class _Unread:
    """The body of a request that is to be refused for its sender. Reading it says: come again.

    Who was unknown a moment ago may be known now, and the body is not here.
    """

    def read(self, _size: int = -1, /) -> bytes:
        raise unavailable()

    readline = read


class Door:
    """Answers RSGI by a WSGI application, on threads that no client can hold."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._of_agents = Bound(REQUESTS_PER_AGENT, 2**31)
        self._of_others = Bound(settings.DOOR_REQUESTS_PER_ADDRESS, REQUESTS_OF_OTHERS)
        self._bodies = Bound(BODIES_PER_ADDRESS, BODIES_OF_OTHERS)
        self._budget = Budget(HELD_BYTES)
        least_bytes_per_s = settings.DOOR_BODY_LEAST_KB_PER_S * 1000
        self._pace = Pace(settings.DOOR_BODY_GRACE_S, least_bytes_per_s, LONGEST_BODY_S)
        self._healthy = recorder("healthz", "GET", 200)
        self._accepted = recorder("telemetry", "POST", 202)
        self._agreed = recorder("telemetry-layouts", "POST", 200)
        self._submitted = recorder("job-list", "POST", 201)
        self._batches = _lane_of_groups("batches", batches.take_all, LINGER_S)
        self._newcomers = _lane_of_groups("newcomers", batches.take_new, LINGER_S)
        self._agreements = _lane_of_groups("agreements", agreeing.take_all, LINGER_S)
        self._submissions = _lane_of_groups("submissions", posts.take_all, SUBMISSION_LINGER_S)
        self._agents_lane = _lane("agents", threads=2, room=4096)
        self._pages = _lane("pages", threads=4, room=512)
        self._sign_in = _lane("sign_in", threads=1, room=32)
        self._probes = _lane("probes", threads=1, room=64)
        self._agents = Agents(self._agents_lane)
        self._shells = Shells(self._budget, self._pace)
        self._orders = Orders(self._agents_lane)
        self._viewers = _lane("viewers", threads=1, room=8)
        self._polls = Polls(self._viewers)
        #: What the event loop does each ``CHORES_EVERY_S``: quick, and waiting for nothing.
        self.chores: list[Callable[[], None]] = [self._beat, self._tell]

    def __rsgi_init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start threads and chores. Called by granian, once in each process."""
        self._loop = loop
        garbage.look_seldom()
        # Threads that are busy give way to the loop sooner than by default, which is 5 ms each.
        sys.setswitchinterval(0.001)
        for lane in self._lanes:
            lane.start(loop)
        self._chores = loop.create_task(self._do_chores())

    @property
    def _lanes(self) -> list[Lane[Any, Any]]:
        return [
            self._batches,
            self._newcomers,
            self._agreements,
            self._submissions,
            self._agents_lane,
            self._pages,
            self._viewers,
            self._sign_in,
            self._probes,
        ]

    async def __rsgi__(self, scope: Scope, protocol: HTTPProtocol) -> None:
        """Answer one request."""
        try:
            answer = await self._answer(scope, protocol)
            await answer.send(protocol)
        except ProtocolClosed:
            metrics.LEFT.inc()

    async def _answer(self, scope: Scope, protocol: HTTPProtocol) -> Answer:
        if scope.path == HEALTH and scope.method in ("GET", "HEAD"):
            self._healthy(0.0)
            return _HEALTHY
        try:
            return await self._answer_of(Request(scope), protocol)
        except Refused as refused:
            metrics.REFUSALS.labels(refused.cause).inc()
            return refused.answer()
        except ProtocolClosed:
            raise
        except Exception:
            log.exception("door_failed", path=scope.path)
            return Refused(Cause.SERVER_ERROR).answer()

    async def _answer_of(self, request: Request, protocol: HTTPProtocol) -> Answer:
        try:
            if is_of_shells(request):
                return await self._of_shell(request, protocol)
            agent = await self._agents.find(request.token)
            if agent is not None:
                with _One(self._of_agents, agent.agent_id, Cause.AGENT_BUSY):
                    return await self._of_agent(agent, request, protocol)
            if is_for_orders(request) and request.is_by_tls:
                return unknown()
            with _One(self._of_others, request.origin, Cause.ADDRESS_BUSY):
                return await self._of_other(request, protocol)
        except (LaneFull, WaitedTooLong):
            raise Refused(Cause.LANE_FULL) from None
        except DatabaseError:
            raise Refused(Cause.UNAVAILABLE) from None

    async def _of_shell(self, request: Request, protocol: HTTPProtocol) -> Answer:
        try:
            return await self._shells.answer(request, protocol)
        except TooMany:
            raise Refused(Cause.TOO_MANY_OPEN) from None

    # --- Agents ----------------------------------------------------------------------------------

    async def _of_agent(
        self, agent: AgentScope, request: Request, protocol: HTTPProtocol
    ) -> Answer:
        began = time.perf_counter()
        if is_for_orders(request) and request.is_by_tls:
            return await self._orders.answer(request, agent, protocol)
        with self._budget.share() as share:
            length = _length(request, batches.MAX_BATCH_BYTES)
            body = await bodies.read(protocol, length, self._pace, share) if length else b""
            answer = await self._at_once(request, body) if _is_fast(request) else None
            if answer is None:
                return await self._call(self._agents_lane, request, body)
            count = self._agreed if request.path == agreeing.PATH else self._accepted
            count(time.perf_counter() - began)
            return answer

    async def _at_once(self, request: Request, body: bytes) -> Answer | None:
        """Return the answer to a good batch or layout; None: it is for Django."""
        post = _post(request, body)
        if request.path == agreeing.PATH:
            agreed = await self._agreements.do(post)
            return Answer(200, agreeing.HEADERS, agreed) if isinstance(agreed, bytes) else None
        taken = await self._take(post)
        return Answer(202, batches.HEADERS, taken) if isinstance(taken, bytes) else None

    async def _take(self, post: batches.Post) -> bytes | batches.Untaken:
        taken = await self._batches.do(post)
        if taken is batches.Untaken.NEW_NAMES:
            return await self._newcomers.do(post)
        return taken

    # --- Others ----------------------------------------------------------------------------------

    async def _of_other(self, request: Request, protocol: HTTPProtocol) -> Answer:
        if request.is_for_agents:
            # Whoever is no agent is told so by the way in, which has its own form for that.
            return await self._call(self._pages, request, _Unread())
        lane = self._lane_of(request)
        if request.method == "GET" and request.path in _POLLED and request.is_by_tls:
            return await self._polls.answer(request, partial(self._ask, request))
        if request.length == 0:
            return await self._call(lane, request, b"")
        length = await self._allowed(request)
        with (
            _One(self._bodies, request.origin, Cause.ADDRESS_BUSY),
            self._budget.share() as share,
        ):
            body = await bodies.read(protocol, length, self._pace, share)
            if _is_submission(request):
                return await self._submit(request, body)
            return await self._call(lane, request, body)

    async def _submit(self, request: Request, body: bytes) -> Answer:
        began = time.perf_counter()
        key = request.headers.get("idempotency-key", "")
        taken = await self._submissions.do(posts.Post(request.token, key, body, request.address))
        if taken is None:
            return await self._call(self._pages, request, body)
        elapsed_s = time.perf_counter() - began
        self._submitted(elapsed_s)
        log_short("POST", posts.PATH, 201, elapsed_s, user_id=taken.user_id, ip=request.address)
        return Answer(201, posts.HEADERS, taken.body)

    async def _ask(self, request: Request, is_conditional: bool) -> Answer:
        environ = request.environ(b"")
        if not is_conditional:
            environ.pop("HTTP_IF_NONE_MATCH", None)
        return await self._run(self._pages, environ)

    async def _allowed(self, request: Request) -> int:
        """Return the length up to which a body of this sender is read."""
        length = _length(request, LARGE_BODY_BYTES)
        if length > SMALL_BODY_BYTES:
            is_known = partial(_is_known, request.environ(b""))
            if not await self._pages.do(is_known):
                raise Refused(Cause.SENDER_UNKNOWN)
        return length

    def _lane_of(self, request: Request) -> Lane[Any, Any]:
        if request.path.startswith(_PROBES):
            return self._probes
        if request.method == "POST" and request.path.startswith(_PASSWORDS):
            return self._sign_in
        if request.path.startswith(_PROVIDER):
            return self._sign_in
        return self._pages

    async def _call(self, lane: Lane[Any, Any], request: Request, body: bytes | Readable) -> Answer:
        return await self._run(lane, request.environ(body))

    async def _run(self, lane: Lane[Any, Any], environ: Environ) -> Answer:
        call = partial(answers.call, self._application, self._loop, environ)
        answer: Answer = await lane.do(call)
        return answer

    # --- Chores ----------------------------------------------------------------------------------

    async def _do_chores(self) -> None:
        while True:
            for chore in self.chores:
                chore()
            await asyncio.sleep(CHORES_EVERY_S)

    def _beat(self) -> None:
        """Show the supervisor that the event loop runs, and that no lane hangs."""
        now = time.monotonic()
        if not any(lane.hangs(now, HANGS_S) for lane in self._lanes):
            heartbeat.beat()

    def _tell(self) -> None:
        for lane in self._lanes:
            metrics.LANE_REQUESTS.labels(lane.name).set(lane.open)
        metrics.OPEN.labels("agents").set(self._of_agents.open)
        metrics.OPEN.labels("shells").set(self._shells.open)
        metrics.OPEN.labels("others").set(self._of_others.open)
        metrics.OPEN.labels("bodies").set(self._bodies.open)
        metrics.HELD_BYTES.set(self._budget.held_bytes)


def _lane(name: str, *, threads: int, room: int) -> Lane[Callable[[], Any], Any]:
    return Lane(name, _do_each, threads=threads, room=room, afterwards=_finish)


def _lane_of_groups(
    name: str, take: Callable[[Sequence[Job]], Sequence[Result]], linger_s: float
) -> Lane[Job, Result]:
    def work(group: Sequence[Job]) -> Sequence[Result]:
        # As Django does before each request of its own.
        close_old_connections()
        return take(group)

    return Lane(name, work, threads=1, room=4096, at_once=64, linger_s=linger_s)


def _do_each(jobs: Sequence[Callable[[], Any]]) -> list[Any]:
    return [job() for job in jobs]


def _finish(result: Any) -> None:
    if isinstance(result, Answer):
        result.finish()


def _is_fast(request: Request) -> bool:
    """Say whether an agent's request may be taken before Django."""
    is_known = request.path in (batches.PATH, agreeing.PATH)
    return is_known and request.method == "POST" and request.is_by_tls


def _is_submission(request: Request) -> bool:
    query = request.scope.query_string
    return request.is_by_tls and posts.is_one(request.method, request.path, query, request.headers)


def _post(request: Request, body: bytes) -> batches.Post:
    headers = request.headers
    return batches.Post(
        authorization=request.authorization,
        content_type=headers.get("content-type", ""),
        encoding=headers.get("content-encoding", ""),
        body=body,
    )


def _is_known(environ: Environ) -> bool:
    close_old_connections()
    return senders.is_known(environ)


def _length(request: Request, most_bytes: int) -> int:
    if request.length is None:
        raise Refused(Cause.LENGTH_REQUIRED)
    if request.length > most_bytes:
        raise Refused(Cause.BODY_TOO_LARGE)
    return request.length


class _One(One):
    """One open request during a block; one too many is a refusal for ``cause``."""

    __slots__ = ("_cause",)

    def __init__(self, bound: Bound, key: Hashable, cause: Cause) -> None:
        super().__init__(bound, key)
        self._cause = cause

    def __enter__(self) -> None:
        try:
            super().__enter__()
        except TooMany as error:
            raise Refused(Cause.TOO_MANY_OPEN if error.in_all else self._cause) from None
