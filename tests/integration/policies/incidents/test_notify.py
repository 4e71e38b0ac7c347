"""Notifications, from what happens to what real servers receive."""

from __future__ import annotations

import hashlib
import hmac
import threading
import time
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connections
from django.utils import timezone

from accounts.roles import Role
from policies.firings import Firing, Severity
from policies.incidents import actions, follow, notify, outbox, tasks
from policies.incidents.models import Delivery, Incident, NotificationChannel, Silence
from policies.incidents.outbox import MAX_ATTEMPTS
from tests.builders.accounts import make_user
from tests.builders.firings import NOW, make_firing
from tests.builders.fleet import small_fleet
from tests.builders.servers import listening, statuses

pytestmark = pytest.mark.django_db


def make_channel(name: str = "ops", url: str = "http://127.0.0.1:1/", **given: Any) -> Any:
    fields = {"kind": "webhook", "secret": "key", "min_severity": "info", **given}
    return NotificationChannel.objects.create(name=name, target=url, **fields)


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def rack(number: int = 1, **given: Any) -> Firing:
    return make_firing(f"rack oslo/A{number:02}", **given)


def events(channel: NotificationChannel | None = None) -> list[str]:
    rows = Delivery.objects.order_by("id")
    rows = rows if channel is None else rows.filter(channel=channel)
    return list(rows.values_list("event", flat=True))


def deliver() -> int:
    """Send what waits, here and now, whatever it was to wait for."""
    now = timezone.now()
    Delivery.objects.waiting().update(next_at=now)
    NotificationChannel.objects.update(not_before=None)
    return outbox.deliver(now=now, run=lambda job: job())


@pytest.mark.usefixtures("fleet")
class TestQueueing:
    def test_a_group_is_waited_for_and_told_once(self) -> None:
        make_channel()
        follow.fired([rack(1)], now=NOW)
        follow.fired([rack(2)], now=later(5))
        assert notify.queue_due(now=later(9)) == 0
        assert notify.queue_due(now=later(10)) == 1
        assert notify.queue_due(now=later(12)) == 0
        told = Delivery.objects.get()
        assert told.event == "opened"
        assert told.content["count"] == 2
        assert told.content["firings"][0]["scope"] == "oslo/A01"

    def test_more_is_told_after_a_while_and_what_is_worse_at_once(self) -> None:
        make_channel()
        follow.fired([rack(1)], now=NOW)
        notify.queue_due(now=later(10))
        follow.fired([rack(2)], now=later(60))
        assert notify.queue_due(now=later(359)) == 0
        assert notify.queue_due(now=later(360)) == 1
        follow.fired([rack(3, severity=Severity.CRITICAL)], now=later(400))
        assert notify.queue_due(now=later(400)) == 1
        assert events() == ["opened", "updated", "updated"]

    def test_it_is_repeated_until_somebody_acknowledges(self) -> None:
        make_channel()
        (incident,) = follow.fired([rack()], now=NOW)
        hours = 3600
        notify.queue_due(now=later(10))
        assert notify.queue_due(now=later(4 * hours)) == 0
        assert notify.queue_due(now=later(4 * hours + 10)) == 1
        actions.acknowledge(make_user(Role.RESPONDER), incident, now=later(5 * hours))
        assert notify.queue_due(now=later(5 * hours)) == 1
        for hour in (9, 13, 17):
            assert notify.queue_due(now=later(hour * hours + 60)) == 0
        assert events() == ["opened", "repeated", "acknowledged"]

    def test_the_end_is_told_to_those_who_know_the_beginning(self) -> None:
        knows, silent = make_channel("knows"), make_channel("silent", send_resolved=False)
        critical = make_channel("critical", min_severity="critical")
        follow.fired([rack()], now=NOW)
        notify.queue_due(now=later(10))
        follow.cleared([rack()], now=later(60))
        follow.settle(now=later(200))
        notify.queue_due(now=later(200))
        assert events(knows) == ["opened", "resolved"]
        assert events(silent) == ["opened"]
        assert events(critical) == []
        assert Incident.objects.get().notify_at is None

    def test_one_that_opens_again_is_told_again(self) -> None:
        knows, silent = make_channel("knows"), make_channel("silent", send_resolved=False)
        follow.fired([rack()], now=NOW)
        notify.queue_due(now=later(10))
        follow.cleared([rack()], now=later(60))
        follow.settle(now=later(200))
        notify.queue_due(now=later(200))
        follow.fired([rack()], now=later(300))
        notify.queue_due(now=later(310))
        assert events(knows) == ["opened", "resolved", "reopened"]
        assert events(silent) == ["opened", "updated"]

    def test_what_was_over_before_anybody_was_told_is_not_told(self) -> None:
        make_channel()
        follow.fired([rack()], now=NOW)
        follow.cleared([rack()], now=later(5))
        notify.queue_due(now=later(10))
        follow.settle(now=later(130))
        notify.queue_due(now=later(130))
        assert events() == []

    def test_a_channel_hears_what_matches(self) -> None:
        oslo = make_channel("oslo", matchers=["site=oslo"])
        heat = make_channel("inlet", matchers=['rule=~"inlet-.*"'])
        off = make_channel("off", enabled=False)
        follow.fired([rack()], now=NOW)
        notify.queue_due(now=later(10))
        assert (events(oslo), events(heat), events(off)) == (["opened"], [], [])

    def test_what_a_feed_loss_explains_is_not_told(self) -> None:
        make_channel()
        lost = make_firing("power_domain oslo/feed-a1", "feed-loss", values={"power_use": 0.0})
        follow.fired([rack(1), rack(2), lost], now=NOW)
        notify.queue_due(now=later(10))
        told = Delivery.objects.get()
        assert told.content["rule"] == "feed-loss"
        assert told.content["count"] == 1

    def test_alertmanager_is_told_again_before_it_forgets(self) -> None:
        channel = make_channel(kind="alertmanager")
        (incident,) = follow.fired([rack()], now=NOW)
        notify.queue_due(now=later(10))
        actions.acknowledge(make_user(Role.RESPONDER), incident, now=later(20))
        notify.queue_due(now=later(20))
        assert notify.queue_due(now=later(320)) == 1
        assert events(channel) == ["opened", "acknowledged", "repeated"]

    def test_keys_tell_all_notifications_apart(self) -> None:
        make_channel("a")
        make_channel("b")
        for number in range(3):
            follow.fired([rack(rule=f"rule-{number}")], now=NOW)
        notify.queue_due(now=later(10))
        keys = list(Delivery.objects.values_list("key", flat=True))
        assert len(set(keys)) == len(keys) == 6

    def test_many_incidents_take_few_queries(self, django_assert_max_num_queries: Any) -> None:
        make_channel()
        follow.fired([rack(rule=f"rule-{number}") for number in range(150)], now=NOW)
        with django_assert_max_num_queries(20):
            assert notify.queue_due(now=later(10)) == 150


@pytest.mark.usefixtures("fleet")
class TestSilences:
    def make(self, *matchers: str, minutes: float = 60) -> Silence:
        return actions.create_silence(
            make_user(Role.RESPONDER),
            matchers=list(matchers),
            reason="maintenance",
            starts_at=NOW,
            expires_at=NOW + timedelta(minutes=minutes),
            now=NOW,
        )

    def test_what_is_silenced_is_recorded_and_not_told(self) -> None:
        make_channel()
        self.make("rule=rack-heat", "site=oslo")
        (incident,) = follow.fired([rack()], now=NOW)
        notify.queue_due(now=later(10))
        assert events() == []
        assert incident.members.get().silence_id is not None

    def test_when_it_ends_what_still_fires_is_told(self) -> None:
        make_channel()
        self.make("rule=rack-heat", minutes=60)
        follow.fired([rack()], now=NOW)
        notify.queue_due(now=later(10))
        follow.fired([rack()], now=later(3601))
        notify.queue_due(now=later(3611))
        assert events() == ["opened"]

    def test_ended_by_hand_it_is_told_too(self) -> None:
        make_channel()
        silence = self.make("rule=rack-heat")
        (incident,) = follow.fired([rack()], now=NOW)
        actions.end_silence(make_user(Role.RESPONDER), silence, now=later(100))
        notify.queue_due(now=later(110))
        assert events() == ["opened"]
        kinds = list(incident.timeline.values_list("kind", flat=True))
        assert kinds == ["opened", "unsilenced"]

    def test_a_warning_comes_once_before_the_end(self) -> None:
        hears, deaf = make_channel("hears"), make_channel("deaf", min_severity="critical")
        silence = self.make("rule=rack-heat", minutes=60)
        follow.fired([rack()], now=NOW)
        assert notify.warn_of_silences(now=later(53 * 60)) == 0
        assert notify.warn_of_silences(now=later(54 * 60)) == 1
        assert notify.warn_of_silences(now=later(55 * 60)) == 0
        assert events(hears) == ["message"]
        assert events(deaf) == []
        told = Delivery.objects.get()
        assert told.subject == f"Silence {silence.pk} of {silence.author} ends in 6 min"
        assert "maintenance" in told.content["body"]
        assert Incident.objects.get().timeline.filter(kind="silence_ends").count() == 1

    def test_a_long_one_is_warned_of_a_quarter_of_an_hour_before(self) -> None:
        assert self.make("rule=x", minutes=24 * 60).warn_at == later((24 * 60 - 15) * 60)

    def test_one_member_can_be_silenced_by_itself(self) -> None:
        make_channel()
        (incident,) = follow.fired([rack(1), rack(2)], now=NOW)
        member = incident.members.get(scope_name="oslo/A01")
        actor = make_user(Role.RESPONDER)
        actions.mute_member(actor, member, later(3600), "part is ordered", now=later(1))
        notify.queue_due(now=later(10))
        told = Delivery.objects.get()
        assert [each["scope"] for each in told.content["firings"]] == ["oslo/A02"]
        # Then it is heard again.
        assert notify.queue_due(now=later(3600)) == 1
        assert events() == ["opened", "updated"]


@pytest.mark.usefixtures("fleet")
class TestMessages:
    def test_a_message_is_queued_once_for_its_key(self) -> None:
        make_channel("a")
        make_channel("b")
        (incident,) = follow.fired([rack()], now=NOW)
        for _ in range(2):
            new = notify.send(["a", "b"], "Approve?", "Cap to 500 W", incident.pk, key="k", now=NOW)
        assert new == 0
        assert events() == ["message", "message"]
        assert Delivery.objects.first().content["incident"] == incident.number  # type: ignore[union-attr]

    def test_an_unknown_channel_is_named_and_nothing_is_queued(self) -> None:
        make_channel("a")
        with pytest.raises(notify.UnknownChannel, match="'b', 'c'"):
            notify.send(["a", "c", "b"], "x", "y", key="k", now=NOW)
        assert events() == []

    def test_one_that_is_switched_off_is_passed_over(self) -> None:
        make_channel("a", enabled=False)
        assert notify.send(["a"], "x", "y", key="k", now=NOW) == 0


@pytest.mark.usefixtures("fleet")
class TestDelivering:
    def message(self, key: str = "k", channel: str = "ops") -> Delivery:
        notify.send([channel], "Subject", "Body", key=key, now=timezone.now())
        return Delivery.objects.get(key=key)

    def test_it_arrives_signed(self) -> None:
        with listening() as server:
            make_channel(url=server.url)
            message = self.message()
            assert deliver() == 1
            (got,) = server.received
        message.refresh_from_db()
        assert (message.state, message.attempts, message.error) == ("sent", 1, "")
        assert got.json()["title"] == "Subject"
        assert got.headers["Idempotency-Key"] == "k"
        signed = got.headers["X-Headroom-Timestamp"].encode() + b"." + got.body
        expected = hmac.new(b"key", signed, hashlib.sha256).hexdigest()
        assert got.headers["X-Headroom-Signature"] == f"v1={expected}"

    def test_a_server_that_fails_once_gets_it_again_with_the_same_key(self) -> None:
        with listening(statuses(500, 200)) as server:
            channel = make_channel(url=server.url)
            message = self.message()
            deliver()
            message.refresh_from_db()
            channel.refresh_from_db()
            assert (message.state, message.error) == ("queued", "the answer is 500: said")
            assert message.next_at > timezone.now()
            assert channel.failures == 1
            assert channel.not_before is not None
            # Before its time nothing is tried.
            assert outbox.deliver(now=timezone.now(), run=lambda job: job()) == 0
            deliver()
            keys = [each.headers["Idempotency-Key"] for each in server.received]
        message.refresh_from_db()
        channel.refresh_from_db()
        assert (message.state, message.attempts) == ("sent", 2)
        assert keys == ["k", "k"]
        assert (channel.failures, channel.not_before, channel.last_error) == (0, None, "")

    def test_it_waits_as_long_as_it_is_asked_to(self) -> None:
        with listening(statuses(429, headers={"Retry-After": "120"})) as server:
            make_channel(url=server.url)
            message = self.message()
            deliver()
        message.refresh_from_db()
        wait = message.next_at - timezone.now()
        assert timedelta(seconds=110) < wait <= timedelta(seconds=120)

    def test_what_is_refused_for_good_is_given_up_and_the_next_goes_on(self) -> None:
        with listening(statuses(400, 200)) as server:
            make_channel(url=server.url)
            first, second = self.message("a"), self.message("b")
            deliver()
        first.refresh_from_db()
        second.refresh_from_db()
        assert (first.state, first.attempts) == ("failed", 1)
        assert second.state == "sent"

    def test_after_so_many_tries_it_is_given_up(self) -> None:
        with listening(statuses(503)) as server:
            make_channel(url=server.url)
            message = self.message()
            for _ in range(MAX_ATTEMPTS + 2):
                deliver()
        message.refresh_from_db()
        assert (message.state, message.attempts) == ("failed", MAX_ATTEMPTS)
        assert len(server.received) == MAX_ATTEMPTS
        assert outbox.revive(message, now=timezone.now())
        assert not outbox.revive(message, now=timezone.now())

    def test_the_timeline_tells_what_became_of_it(self) -> None:
        (incident,) = follow.fired([rack()], now=NOW)
        with listening(statuses(200, 404)) as server:
            make_channel(url=server.url)
            for key in ("a", "b"):
                notify.send(["ops"], "x", "y", incident, key=key, now=timezone.now())
                deliver()
        assert list(incident.timeline.values_list("kind", "text"))[1:] == [
            ("notified", "ops was told: message."),
            ("notify_failed", "ops could not be told: the answer is 404: said."),
        ]

    def test_an_address_that_became_ours_is_refused_when_it_is_sent(self, settings: Any) -> None:
        with listening() as server:
            make_channel(url=server.url)
            message = self.message()
            settings.NOTIFY_ALLOWED_NETWORKS = []
            deliver()
        message.refresh_from_db()
        assert message.state == "failed"
        assert "NOTIFY_ALLOWED_NETWORKS" in message.error
        assert not server.received

    def test_email_goes_out(self, mailoutbox: list[Any]) -> None:
        make_channel(kind="email", url="oncall@example.com")
        self.message()
        deliver()
        assert mailoutbox[0].to == ["oncall@example.com"]

    def test_one_that_cannot_be_read_does_not_hold_up_the_next(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        with listening() as server:
            make_channel(url=server.url)
            broken, good = self.message("a"), self.message("b")
            Delivery.objects.filter(pk=broken.pk).update(content={"event": "sung"})
            deliver()
        broken.refresh_from_db()
        good.refresh_from_db()
        assert (broken.state, good.state) == ("failed", "sent")

    def test_a_channel_is_served_by_one_at_a_time(self) -> None:
        channel = make_channel()
        self.message()
        now = timezone.now()
        assert outbox.claim(channel.pk, now) is not None
        assert outbox.claim(channel.pk, now) is None
        # A worker that died with it gives it back by and by.
        assert outbox.claim(channel.pk, now + timedelta(minutes=2)) is not None

    def test_a_worker_that_dies_after_sending_sends_again_with_the_same_key(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def die(*_: Any) -> None:
            raise SystemExit

        with listening() as server:
            make_channel(url=server.url)
            message = self.message()
            with monkeypatch.context() as dying:
                dying.setattr(outbox, "_record", die)
                with pytest.raises(SystemExit):
                    deliver()
            message.refresh_from_db()
            assert (message.state, message.attempts) == ("queued", 1)
            # Its claim holds for a while; then somebody else goes on.
            run = {"run": lambda job: job()}
            assert outbox.deliver(now=timezone.now(), **run) == 0
            assert outbox.deliver(now=timezone.now() + timedelta(minutes=2), **run) == 1
            keys = [each.headers["Idempotency-Key"] for each in server.received]
        message.refresh_from_db()
        assert (message.state, message.attempts, keys) == ("sent", 2, ["k", "k"])

    def test_a_claim_that_came_too_late_is_not_sent(self) -> None:
        with listening() as server:
            channel = make_channel(url=server.url)
            self.message()
            claimed = outbox.claim(channel.pk, timezone.now() - timedelta(hours=1))
            assert claimed is None  # nothing was due then
            claimed = outbox.claim(channel.pk, timezone.now())
            assert claimed is not None
            outbox.work(outbox.Claim(claimed.channel, claimed.deliveries, NOW))
        assert not server.received

    def test_old_ones_are_forgotten_but_of_incidents_that_go_on(self) -> None:
        make_channel()
        (incident,) = follow.fired([rack()], now=NOW)
        notify.queue_due(now=later(10))
        for key in ("old", "queued"):
            notify.send(["ops"], "x", "y", incident, key=key, now=NOW)
        Delivery.objects.exclude(key="queued").update(state="sent")
        outbox.prune(now=NOW + outbox.KEPT + timedelta(days=1))
        assert set(Delivery.objects.values_list("event", "state")) == {
            ("opened", "sent"),
            ("message", "queued"),
        }

    def test_one_that_was_withdrawn_is_not_sent(self) -> None:
        with listening() as server:
            channel = make_channel(url=server.url)
            first, second = self.message("a"), self.message("b")
            claimed = outbox.claim(channel.pk, timezone.now())
            assert claimed is not None
            Delivery.objects.filter(pk=first.pk).update(state="failed", error="withdrawn")
            outbox.work(claimed)
        first.refresh_from_db()
        second.refresh_from_db()
        assert (first.state, first.error, second.state) == ("failed", "withdrawn", "sent")
        assert len(server.received) == 1


@pytest.mark.django_db(transaction=True)
def test_a_webhook_that_hangs_holds_nobody_up(settings: Any) -> None:
    """With the threads that run in production."""
    settings.NOTIFY_TIMEOUT_S = 5.0
    with listening(hangs=True) as hung, listening() as good:
        hanging, ops = make_channel("hangs", hung.url), make_channel("ops", good.url)
        now = timezone.now()
        for number in range(8):
            notify.send(["hangs", "ops"], "x", "y", key=f"k{number}", now=now)
        begin = time.monotonic()
        assert outbox.deliver(now=now) == 2
        assert time.monotonic() - begin < 4.5
        good.wait_for(5)
        while Delivery.objects.waiting().filter(channel=ops).exists():
            assert time.monotonic() - begin < 60
            outbox.deliver(now=timezone.now())
            time.sleep(0.05)
        assert len(hung.received) == 1
        while not NotificationChannel.objects.get(pk=hanging.pk).failures:
            assert time.monotonic() - begin < 60
            time.sleep(0.05)
        # It is left alone for a while: the next round does not touch it.
        assert outbox.deliver(now=timezone.now()) == 0
    assert [each.headers["Idempotency-Key"] for each in good.received] == [
        f"k{number}" for number in range(8)
    ]
    hanging.refresh_from_db()
    assert hanging.last_error == "no answer within 5 s"
    assert Delivery.objects.filter(channel=hanging, state="queued").count() == 8


@pytest.mark.django_db(transaction=True)
def test_two_workers_send_each_notification_once() -> None:
    with listening() as server:
        for number in range(3):
            make_channel(f"c{number}", server.url)
        for number in range(4):
            notify.send(["c0", "c1", "c2"], "x", "y", key=f"k{number}", now=timezone.now())
        start = threading.Barrier(3)

        def one() -> None:
            try:
                start.wait(60)
                outbox.deliver(now=timezone.now(), run=lambda job: job())
            finally:
                connections.close_all()

        threads = [threading.Thread(target=one) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert len(server.received) == 12
    assert not Delivery.objects.waiting().exists()


@pytest.mark.django_db(transaction=True)
def test_the_beat_does_all_of_it(settings: Any) -> None:
    settings.INCIDENT_GROUP_WAIT_S = 0.0
    settings.INCIDENT_QUIET_S = 0.0
    small_fleet(racks_per_row=1, nodes_per_rack=1, gpus_per_node=1)
    with listening() as server:
        make_channel(url=server.url)
        follow.fired([rack()], now=timezone.now())
        tasks.deliver()
        server.wait_for(1)
        while Delivery.objects.waiting().exists():
            time.sleep(0.02)
        follow.cleared([rack()], now=timezone.now())
        while NotificationChannel.objects.exclude(not_before=None).exists():
            time.sleep(0.02)
        tasks.deliver()
        server.wait_for(2)
        while Delivery.objects.waiting().exists():
            time.sleep(0.02)
    assert [each.json()["event"] for each in server.received] == ["opened", "resolved"]
    tasks.warn_of_silences()
    assert Incident.objects.get().state == "resolved"
