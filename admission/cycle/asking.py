"""Questions about the last decision, answered by the worker that made it.

A decision is the queue and the fleet as a cycle left them: hundreds of megabytes of objects, which
take longer to write down than to decide anew. So it stays where it was made, and what goes through
Valkey is the question and its answer. The worker answers from a thread of its own, between cycles
and beside them; whoever asks is told of which moment the answer is.
"""

from __future__ import annotations

import os
import secrets
import sys
import threading
from typing import cast

import msgspec
import redis
import structlog

from admission.core.cycle import whatif
from admission.core.cycle.controlled import lowered
from admission.core.cycle.decide import Decisions
from admission.core.cycle.whatif import DryRun, Explanation
from admission.core.request import Request
from admission.core.snapshot import Pending
from admission.queue.queue_status import plain
from telemetry import stream

__all__ = ["Answer", "Answering", "Question", "answered", "ask", "hold"]

log = structlog.get_logger(__name__)

#: Who answers. Nobody, where it was not renewed for so long, s.
_ANSWERS = "admission:answers"
_ANSWERS_FOR_S = 60
#: Questions to one process, and the answer to one question. They are forgotten after so long, s.
_ASKED = "admission:asked:"
_TOLD = "admission:told:"
_FORGOTTEN_S = 10
#: Whoever asks waits for so long, s. Then it is taken that nobody is there.
_PATIENCE_S = 2.0
#: A connection is looked after so often, s.
_LOOKS_EVERY_S = 2.0


class Question(msgspec.Struct, array_like=True, frozen=True):
    """Why the job ``key`` waits; or what would come of ``request`` if it were submitted now."""

    key: str = ""
    request: Request | None = None


class Answer(msgspec.Struct, array_like=True, frozen=True):
    """An answer to one of both; neither where the job does not wait."""

    explanation: Explanation | None = None
    dry_run: DryRun | None = None


class _Asked(msgspec.Struct, array_like=True, frozen=True):
    id: str
    question: Question


_pack = msgspec.msgpack.Encoder(enc_hook=plain).encode
_asked = msgspec.msgpack.Decoder(_Asked)
_answer = msgspec.msgpack.Decoder(Answer)


def answered(decisions: Decisions, question: Question) -> Answer:
    """Return the answer out of ``decisions``."""
    request = question.request
    if request is not None:
        if decisions.snapshot.starts_low:
            request = lowered(decisions.snapshot.cluster, request)
        return Answer(dry_run=whatif.dry_run(decisions, Pending(request)))
    try:
        return Answer(explanation=whatif.explain(decisions, question.key))
    except KeyError:  # it has begun, or came after this cycle
        return Answer()


# --- Who asks ------------------------------------------------------------------------------------


def ask(question: Question) -> Answer | None:
    """Return the answer of the worker that decided last; None where nobody answers."""
    client = stream.connection()
    name = cast(bytes | None, client.get(_ANSWERS))
    if name is None:
        return None
    asked = _Asked(secrets.token_hex(8), question)
    to = _ASKED + name.decode()
    pipe = client.pipeline(transaction=True)
    pipe.rpush(to, _pack(asked))
    pipe.expire(to, _FORGOTTEN_S)
    pipe.execute()
    told = cast(tuple[bytes, bytes] | None, client.blpop([_TOLD + asked.id], _PATIENCE_S))
    if told is None:
        log.warning("admission_nobody_answers", asked=question.key)
        if client.get(_ANSWERS) == name:
            client.delete(_ANSWERS)
        return None
    return _answer.decode(told[1])


# --- Who answers ---------------------------------------------------------------------------------


class Answering:
    """The last decision of this process, and the thread that answers from it."""

    def __init__(self) -> None:
        #: in which others leave questions for this process
        self.name = ""
        self._decisions: Decisions | None = None
        self._thread: threading.Thread | None = None
        self._process = 0
        self._is_over = threading.Event()

    def hold(self, decisions: Decisions) -> None:
        """Answer from ``decisions`` from now on."""
        self._decisions = decisions
        # Of a process that was forked off its thread has stayed behind.
        if self._process != os.getpid():
            self.name, self._process = secrets.token_hex(8), os.getpid()
            self._thread = threading.Thread(target=self._run, name="answers", daemon=True)
            self._thread.start()
        stream.connection().set(_ANSWERS, self.name, ex=_ANSWERS_FOR_S)

    def end(self) -> None:
        """Answer nothing any more. Waits for the thread."""
        self._is_over.set()
        stream.connection().rpush(_ASKED + self.name, b"")
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        # A cycle gives way to a question sooner than by default, which is 5 ms each time.
        sys.setswitchinterval(0.001)
        while not self._is_over.is_set():
            try:
                self._answer_next()
            except redis.RedisError as exc:
                log.warning("admission_answers_wait", why=str(exc))
                self._is_over.wait(_LOOKS_EVERY_S)
            except Exception:
                log.exception("admission_answer_failed")

    def _answer_next(self) -> None:
        client = stream.connection()
        found = cast(tuple[bytes, bytes] | None, client.blpop([_ASKED + self.name], _LOOKS_EVERY_S))
        decisions = self._decisions
        if found is None or decisions is None or self._is_over.is_set():
            return
        asked = _asked.decode(found[1])
        told = _TOLD + asked.id
        pipe = client.pipeline(transaction=True)
        pipe.rpush(told, _pack(answered(decisions, asked.question)))
        pipe.expire(told, _FORGOTTEN_S)
        pipe.execute()


hold = Answering().hold
