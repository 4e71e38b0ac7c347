"""Performing the effects of a move. Each is a row in Postgres, under a key of run and step.

So an effect is committed together with the state that tells of it, and asking for it again changes
nothing. What leaves Postgres (messages, directives) leaves it from an outbox, by others.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from policies.firings import Severity
from policies.incidents import notify
from policies.incidents.models import RANK, Delivery, Incident, NotificationChannel
from policies.playbooks.directives import issue, withdraw
from policies.playbooks.document import (
    Approve,
    Manual,
    Migrate,
    Notify,
    PlannedStep,
    Restrict,
    Webhook,
)
from policies.playbooks.machine import Effect, Escalate, Hold, Issue, Release, Send, Withdraw
from policies.playbooks.models import PlaybookRun
from policies.playbooks.performing import Refused, hold, release, scope_of
from policies.playbooks.pursuit import escalation
from policies.playbooks.view import View
from policies.restrictions import store


@dataclass(frozen=True)
class Performer:
    """Performs the effects of one run at one moment, inside of the caller's transaction."""

    row: PlaybookRun
    view: View
    now: datetime

    def perform(self, effect: Effect) -> str:
        """Perform an effect, and return a note on it, empty for most. Raises :class:`Refused`."""
        if isinstance(effect, Escalate):
            self._escalate(effect)
            return ""
        step = self.view.program.step(effect.path)
        if isinstance(effect, Hold):
            return self._hold(step, effect)
        if isinstance(effect, Release):
            release(store.book(), effect.path, self.row, why=effect.why, now=self.now)
        elif isinstance(effect, Send):
            self._send(step, effect)
        elif isinstance(effect, Issue):
            return self._issue(step, effect)
        elif isinstance(effect, Withdraw):
            self._withdraw(step, effect)
        return ""

    def _hold(self, step: PlannedStep, effect: Hold) -> str:
        said = step.action.reason if isinstance(step.action, Restrict) else ""
        return hold(
            store.book(),
            effect,
            self.row,
            self.view,
            now=self.now,
            reason=self._text(said) if said else "",
            evidence=self._evidence(step),
        )

    def _evidence(self, step: PlannedStep) -> dict[str, object]:
        return {
            "playbook": self.row.playbook,
            "version": self.row.version.number,
            "run": self.row.pk,
            "step": step.id,
            "incident": self.row.incident_id,
            "values": self.row.values,
        }

    def _text(self, text: str) -> str:
        incident = "" if self.row.incident_id is None else f"INC-{self.row.incident_id}"
        about = self.row.values if "rollout" in self.row.values else {}
        return self.view.filled(
            text, incident=incident, started_by=self.row.started_by,
            rollout=str(about.get("rollout", "")), rollout_version=str(about.get("version", "")),
        )  # fmt: skip

    def _send(self, step: PlannedStep, effect: Send) -> None:
        """Put a message into the outbox. A question is asked even if a channel is not there."""
        action = step.action
        if isinstance(action, Notify | Webhook):
            channels = [action.channel] if isinstance(action, Webhook) else action.channels
            self._queue(
                step.path, list(channels), self._text(action.subject), self._text(action.body)
            )
            return
        try:
            self._ask(step, escalated=effect.escalated)
        except Refused:
            return

    def _ask(self, step: PlannedStep, *, escalated: bool) -> None:
        action = step.action
        path = f"{step.path}/escalated" if escalated else step.path
        asks = f"{self.row.playbook} on {self.row.scope}, step {step.id}"
        if isinstance(action, Restrict):
            question = f"{action.kind} on {self.row.scope} is held back"
            self._queue(path, [], f"Approval wanted: {question}", f"{question}\n\n{asks}")
        elif isinstance(action, Approve):
            to = action.escalate.channels if escalated and action.escalate else action.channels
            question = self._text(action.question)
            self._queue(path, to, f"Approval wanted: {question}", f"{question}\n\n{asks}")
        elif isinstance(action, Manual):
            instruction = self._text(action.instruction)
            self._queue(path, action.channels, f"To do: {instruction}", f"{instruction}\n\n{asks}")

    def _escalate(self, effect: Escalate) -> None:
        """Tell whoever hears of the incident. The key lets it be told once."""
        said = escalation(effect, self.row.rule, self.row.attempt)
        asks = f"{self.row.playbook} on {self.row.scope}, run {self.row.pk}"
        path = "given-up" if effect.is_over else "escalated"
        self._queue(path, [], f"{self.row.scope}: {said}"[:300], f"{said}\n\n{asks}")

    def _queue(self, path: str, channels: list[str], subject: str, body: str) -> None:
        try:
            notify.send(
                channels or self._hearing(),
                subject,
                body,
                self.row.incident_id,
                key=self.row.key(path),
                now=self.now,
                severity=self._severity,
            )
        except notify.UnknownChannel as error:
            raise Refused(str(error)) from error

    @cached_property
    def _severity(self) -> Severity:
        if self.row.incident_id is None:
            return Severity.WARNING
        found = Incident.objects.filter(pk=self.row.incident_id).first()
        return Severity.WARNING if found is None else Severity(found.severity)

    def _hearing(self) -> list[str]:
        """Return the channels that take messages as severe as the incident."""
        return [
            channel.name
            for channel in NotificationChannel.objects.enabled()
            if RANK[Severity(channel.min_severity)] <= RANK[self._severity]
        ]

    def _issue(self, step: PlannedStep, effect: Issue) -> str:
        arguments = {"to": step.action.to} if isinstance(step.action, Migrate) else {}
        issue(
            self.row,
            step.path,
            kind=step.kind,
            scope=scope_of(step, self.row, self.view),
            arguments=arguments,
            until=effect.until,
            now=self.now,
        )
        return ""

    def _withdraw(self, step: PlannedStep, effect: Withdraw) -> None:
        key = self.row.key(step.path)
        if not isinstance(step.action, Webhook):
            withdraw(key, why=effect.why, now=self.now)
            return
        # Not sent any more after the run has gone another way.
        Delivery.objects.filter(key=key, state=Delivery.State.QUEUED).update(
            state=Delivery.State.FAILED, error=f"withdrawn: {effect.why}"[:500]
        )
