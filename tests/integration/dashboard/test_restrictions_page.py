"""The Restrictions pages: what they show, and what people do on them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from accounts.models import AuditEntry
from accounts.roles import Role
from dashboard import state
from fleet import snapshot
from fleet.models import Rack
from policies.restrictions import actions, ledger, store
from policies.restrictions.kinds import RestrictionKind, Wanted
from policies.restrictions.models import FleetBreaker, Restriction
from policies.scopes import Scope, ScopeKind
from tests.builders.accounts import client_of, make_user
from tests.builders.fleet import SmallFleet
from tests.builders.policies import lower_budget
from tests.html import html_of
from tests.integration.dashboard.test_throttle_page import text_of

URL = "/restrictions/"
CAP = RestrictionKind.POWER_CAP_W
DRAIN = RestrictionKind.DRAIN


def make_wanted(on: str = "rack oslo/A01", *, for_s: float = 3600.0, **given: Any) -> Wanted:
    """A power cap of a rule. It takes 140 of 700 W."""
    kind, _, name = on.partition(" ")
    fields: dict[str, Any] = {
        "kind": CAP, "scope": Scope(ScopeKind(kind), name), "value": 560.0,
        "reason": "rack over its budget", "owner": "rule:rack-power", "cause": on,
        "expires_at": datetime.now(UTC) + timedelta(seconds=for_s),
        "evidence": {"power_use": 1.04},
    }  # fmt: skip
    return Wanted(**{**fields, **given})


def hold(on: str = "rack oslo/A01", **given: Any) -> Restriction:
    snapshot.invalidate()
    at = given.pop("at", datetime.now(UTC))
    (row,) = store.apply([make_wanted(on, **given)], now=at)
    return row


@pytest.fixture
def responder(db: None) -> Client:
    return client_of(Role.RESPONDER)


@pytest.fixture
def operator(db: None) -> Client:
    return client_of(Role.OPERATOR)


def opened(client: Client, path: str = URL, status: int = 200) -> str:
    response = client.get(path)
    assert response.status_code == status
    return html_of(response)


def section(html: str, title: str) -> str:
    """Return the panel that ``title`` (an id without "-title") is the heading of."""
    start = html.index(f'aria-labelledby="{title}-title"')
    return "<" + html[start : html.index("</section>", start)]


# --- The list ------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [URL, "/live/restrictions", "/restrictions/new/"])
def test_nobody_sees_it_without_logging_in(client: Client, small: SmallFleet, path: str) -> None:
    assert client.get(path).status_code == 302


def test_without_any_it_says_where_they_come_from(viewer: Client, small: SmallFleet) -> None:
    html = opened(viewer)
    text = text_of(html)
    assert "Nothing is restricted now" in text
    assert "Rules, playbooks and people restrict places here" in text
    assert "Nothing waits." in text
    assert "No restriction has ended yet." in text
    assert "/restrictions/new/" not in html
    assert "/restrictions/new/" in opened(client_of(Role.OPERATOR))


def test_of_several_the_strictest_is_marked_and_all_are_shown(
    viewer: Client, small: SmallFleet
) -> None:
    loose, strict = hold(value=600.0, cause="a"), hold(value=560.0, cause="b")
    html = opened(viewer)
    text = text_of(section(html, "in-force"))
    assert re.search(
        r"2 restrictions in force on 1 scope · the next ends in (60|59) min", text_of(html)
    )
    first, second = re.findall(r'id="restriction-(\d+)"', html)
    assert (int(first), int(second)) == (strict.pk, loose.pk)
    assert "power_cap_w rack oslo/A01 560 W strictest" in text
    assert f"power_cap_w rack oslo/A01 600 W no: {strict.pk} is stricter" in text


def test_a_stricter_one_on_a_wider_scope_counts(viewer: Client, small: SmallFleet) -> None:
    rack = hold("rack oslo/A01", value=600.0)
    for wider in ("power_domain oslo/utility", "zone oslo/hall-1", "site oslo"):
        row = hold(wider, value=560.0, owner="user:anna")
        text = text_of(section(opened(viewer), "in-force"))
        assert f"600 W no: {row.pk} is stricter" in text
        store.release("user:anna", now=datetime.now(UTC), by="anna", why="over")
    assert "600 W strictest" in text_of(section(opened(viewer), "in-force"))
    assert f"/restrictions/{rack.pk}/" in opened(viewer)


def test_what_waits_can_be_decided_by_those_who_may(
    viewer: Client, responder: Client, small: SmallFleet
) -> None:
    row = hold("site oslo", kind=DRAIN, value=None)
    assert row.state == Restriction.State.PENDING_APPROVAL
    html = opened(viewer)
    assert "1 waits for a person" in text_of(html)
    waiting = text_of(section(html, "waiting"))
    assert "policies would take 100 % of site oslo" in waiting
    assert f"/restrictions/{row.pk}/approve/" not in html
    assert f"/restrictions/{row.pk}/approve/" in opened(responder)
    assert f"/restrictions/{row.pk}/refuse/" in opened(responder)


def test_the_breakers_say_how_they_stand(viewer: Client, small: SmallFleet) -> None:
    hold("rack oslo/A01")
    text = text_of(section(opened(viewer), "breakers"))
    assert "closed: effects are added" in text
    assert "oslo 3 %" in text  # 8 of 48 GPUs, a fifth of each
    assert "without a person they may take 20 %" in text


def test_history_says_how_each_ended(viewer: Client, small: SmallFleet) -> None:
    hold(for_s=1, at=datetime.now(UTC))
    hold("rack oslo/A02", cause="over")
    store.release("rule:rack-power", cause="over", now=datetime.now(UTC), by="x", why="it cleared")
    assert "released x it cleared" in text_of(section(opened(viewer), "over"))
    Restriction.objects.filter(scope_name="oslo/A01").update(
        expires_at=datetime.now(UTC) - timedelta(seconds=1)
    )
    # By the clock, before any sweep.
    history = text_of(section(opened(viewer, f"{URL}?show=history"), "over"))
    assert "History 2" in history
    assert "oslo/A01 560 W expired" in history


def test_filters_are_in_the_url(viewer: Client, small: SmallFleet) -> None:
    cap, away = hold(), hold("rack bergen/A01", kind=RestrictionKind.PREFER_AWAY, value=None)

    def shown(query: str) -> list[int]:
        return [int(n) for n in re.findall(r'id="restriction-(\d+)"', opened(viewer, URL + query))]

    assert shown("?kind=prefer_away") == [away.pk]
    assert shown("?search=OSLO") == [cap.pk]
    assert shown("?search=rack+bergen/A01") == [away.pk]
    assert shown("?kind=gremlins") == [cap.pk, away.pk]
    text = text_of(opened(viewer, f"{URL}?search=nowhere"))
    assert "None of the 2 in force are of what is chosen above" in text
    (poll,) = re.findall(r'hx-get="([^"]+)"', opened(viewer, f"{URL}?kind=prefer_away"))
    assert "kind=prefer_away" in poll


def test_many_are_paged_and_cost_no_more_queries(
    viewer: Client, small: SmallFleet, django_assert_max_num_queries: Any
) -> None:
    snapshot.invalidate()
    wanted = [make_wanted(cause=f"c{i}", on=f"node {n}") for i, n in enumerate(small.nodes)]
    away: dict[str, Any] = {"kind": RestrictionKind.PREFER_AWAY, "value": None}
    wanted += [
        make_wanted(f"gpu {node}/{gpu}", owner="user:x", cause=f"{gpu}", value=500.0)
        for node in small.nodes
        for gpu in range(2)
    ]
    wanted += [make_wanted(f"rack {rack}", **away) for rack in small.racks]
    store.apply(wanted, now=datetime.now(UTC))
    with django_assert_max_num_queries(22):
        html = opened(viewer)
    assert len(re.findall(r'<th scope="row"', section(html, "in-force"))) == 50
    assert 'href="?page=2"' in html


def test_names_are_escaped_and_long_ones_are_fine(viewer: Client, small: SmallFleet) -> None:
    name = '<b title="x">' + "w" * 180
    Rack.objects.filter(pk=small.racks["oslo/A01"].pk).update(name=name)
    row = hold(f"rack oslo/{name}", reason=name, owner=f"rule:{name}"[:200], cause=name)
    html = opened(viewer) + opened(viewer, f"{URL}{row.pk}/")
    html += opened(client_of(Role.OPERATOR), f"{URL}{row.pk}/lift/")
    assert '<b title="x">' not in html
    assert "&lt;b title=&quot;x&quot;&gt;" in html


def test_a_poll_answers_with_nothing_while_nothing_changed(
    viewer: Client, small: SmallFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = hold()
    # Between two polls it would end in 60 min, and then in 59.
    stands = timezone.now()
    monkeypatch.setattr(timezone, "now", lambda: stands)
    for path in ("/live/restrictions", f"/live/restrictions/{row.pk}"):
        (poll,) = re.findall(r'hx-get="([^"]+)"', opened(viewer, path))
        assert viewer.get(poll.replace("&amp;", "&")).status_code == 204
        assert viewer.get(path).status_code == 200
    assert 'id="restrictions-answer" hx-swap-oob="true"' in opened(viewer, "/live/restrictions")


# --- One of them ---------------------------------------------------------------------------------


def test_it_says_what_waits_to_be_known(viewer: Client, small: SmallFleet) -> None:
    row = hold()
    text = text_of(opened(viewer, f"{URL}{row.pk}/"))
    assert re.search(r"power_cap_w 560 W on rack oslo/A01 · in force, ends in (60|59) min", text)
    assert "No GPU here draws more: 8 GPUs" in text
    assert "acknowledged due by" in text
    assert "verdict due by" in text
    assert "power use 104 %" in text


def test_the_ledger_goes_from_issue_to_verdict(viewer: Client, small: SmallFleet) -> None:
    began = datetime.now(UTC) - timedelta(seconds=330)
    for before_s in (50, 30, 10):
        small.report(at=began.timestamp() - before_s, power_w=650.0)
    row = hold(at=began)
    for after_s in (5, 40, 55, 275, 290):
        small.report(at=began.timestamp() + after_s, power_w=560.0, temp_c=57.0)
    ledger.follow(datetime.now(UTC))
    html = opened(viewer, f"{URL}{row.pk}/")
    text = text_of(html)
    assert "asked 560 W, applied on none of 8 GPUs, power fell 0.7 kW" in text
    assert "not_applied" in text
    assert "acknowledged not yet; it was due by" in text
    assert "8 of 8 5.2 4.5 0.7 \N{MINUS SIGN}3.0" in text
    assert "asked 560 W" in text_of(section(opened(viewer), "in-force"))


def test_steps_that_do_not_come_say_why(viewer: Client, small: SmallFleet) -> None:
    drain = hold(kind=DRAIN, value=None, owner="user:anna")
    text = text_of(opened(viewer, f"{URL}{drain.pk}/"))
    assert "acknowledged not for this no agent sets this kind" in text
    job = hold("job llama", kind=RestrictionKind.MAX_BATCH_SCALE, value=0.5, cause="job")
    text = text_of(opened(viewer, f"{URL}{job.pk}/"))
    assert "max_batch_scale 50 %" in text
    assert "verdict not for this no GPU is in this scope" in text


@pytest.mark.parametrize("path", ["999999", "99999999999999999999999"])
def test_one_that_is_not_there_is_not_found(viewer: Client, small: SmallFleet, path: str) -> None:
    opened(viewer, f"{URL}{path}/", status=404)


# --- Issue ---------------------------------------------------------------------------------------


GIVEN = {
    "kind": "power_cap_w", "scope_kind": "rack", "scope": "oslo/A01", "value": "500",
    "lasts": "3600", "reason": "hot aisle door is open",
}  # fmt: skip


@pytest.mark.parametrize("role", [Role.VIEWER, Role.ML_USER, Role.RESPONDER])
def test_only_who_may_edit_policies_restricts(small: SmallFleet, role: Role) -> None:
    client = client_of(role)
    assert client.get("/restrictions/new/").status_code == 403
    assert client.post("/restrictions/new/", GIVEN).status_code == 403
    assert not Restriction.objects.exists()


def test_a_restriction_by_hand_is_in_force_and_audited(operator: Client, small: SmallFleet) -> None:
    response = operator.post("/restrictions/new/", GIVEN)
    row = Restriction.objects.get()
    assert response["Location"] == f"/restrictions/{row.pk}/"
    assert (row.state, row.value, row.scope_name) == ("in_force", 500.0, "oslo/A01")
    assert timedelta(minutes=59) < row.expires_at - datetime.now(UTC) < timedelta(minutes=61)
    assert AuditEntry.objects.filter(action="restriction.issue", detail__id=row.pk).exists()
    assert f"Restriction {row.pk} is in force." in opened(operator, f"/restrictions/{row.pk}/")


def test_an_end_at_a_time_is_taken_as_utc(operator: Client, small: SmallFleet) -> None:
    until = (datetime.now(UTC) + timedelta(hours=3)).replace(second=0, microsecond=0)
    given = {**GIVEN, "lasts": "until", "until": until.strftime("%Y-%m-%dT%H:%M")}
    assert operator.post("/restrictions/new/", given).status_code == 302
    assert Restriction.objects.get().expires_at == until


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"lasts": ""}, "This field is required."),
        ({"lasts": "until"}, "Give the time at which it ends"),
        ({"lasts": "until", "until": "2020-01-01T00:00"}, "It has to end within 30 days"),
        ({"scope": "oslo/Z99"}, "There is no rack"),
        ({"scope_kind": "link"}, "power_cap_w cannot be on a link"),
        ({"value": ""}, "needs a value within its bounds"),
        ({"value": "10"}, "Give at least 200 W, or drain the place instead"),
        ({"value": "nan"}, "Enter a number."),
        ({"kind": "gremlins"}, "Select a valid choice."),
        ({"reason": ""}, "This field is required."),
    ],
)
def test_what_is_wrong_is_told_beside_its_field(
    operator: Client, small: SmallFleet, wrong: dict[str, str], words: str
) -> None:
    response = operator.post("/restrictions/new/", {**GIVEN, **wrong})
    assert response.status_code == 400
    html = html_of(response)
    assert words in text_of(html)
    assert 'class="errorlist"' in html
    assert not Restriction.objects.exists()


def test_the_same_twice_is_a_conflict(operator: Client, small: SmallFleet) -> None:
    operator.post("/restrictions/new/", GIVEN)
    response = operator.post("/restrictions/new/", GIVEN)
    assert response.status_code == 409
    assert "You have this very restriction in force: extend it." in html_of(response)


def test_while_the_breaker_is_open_the_form_says_so(operator: Client, small: SmallFleet) -> None:
    boss = make_user(Role.RESPONDER, username="boss")
    actions.throw_breaker(boss, is_open=True, reason="rules run wild", now=datetime.now(UTC))
    assert "boss has opened the fleet breaker (rules run wild)" in opened(
        operator, "/restrictions/new/"
    )
    response = operator.post("/restrictions/new/", GIVEN)
    assert response.status_code == 409
    assert "close it first" in html_of(response)


# --- Decide --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "roles"),
    [
        ("extend", {Role.OPERATOR, Role.ADMIN}),
        ("lift", {Role.RESPONDER, Role.OPERATOR, Role.ADMIN}),
        ("approve", {Role.RESPONDER, Role.OPERATOR, Role.ADMIN}),
        ("refuse", {Role.RESPONDER, Role.OPERATOR, Role.ADMIN}),
    ],
)
def test_each_verb_is_for_some_roles(small: SmallFleet, verb: str, roles: set[Role]) -> None:
    row = hold()
    for role in Role:
        client = client_of(role)
        path = f"/restrictions/{row.pk}/{verb}/"
        assert client.get(path).status_code == (200 if role in roles else 403)
        if role not in roles:
            assert client.post(path, {"version": 1, "reason": "x"}).status_code == 403
    assert Restriction.objects.get().state == Restriction.State.IN_FORCE


def test_a_held_one_is_approved(responder: Client, small: SmallFleet) -> None:
    row = hold("site oslo", kind=DRAIN, value=None)
    path = f"/restrictions/{row.pk}/approve/"
    assert "It has its effect at once, on 48 GPUs." in text_of(opened(responder, path))
    assert responder.post(path, {"version": row.version}).status_code == 302
    row.refresh_from_db()
    assert row.state == Restriction.State.IN_FORCE
    assert AuditEntry.objects.filter(action="restriction.approve").exists()


def test_one_that_changed_meanwhile_is_looked_at_again(
    responder: Client, small: SmallFleet
) -> None:
    row = hold("site oslo", kind=DRAIN, value=None)
    path = f"/restrictions/{row.pk}/refuse/"
    response = responder.post(path, {"version": row.version + 1, "reason": "no"})
    assert response.status_code == 409
    html = html_of(response)
    assert "It has changed since you looked: look again." in text_of(html)
    assert f'name="version" value="{row.version}"' in html


def test_refusing_needs_a_reason_and_is_remembered(responder: Client, small: SmallFleet) -> None:
    row = hold("site oslo", kind=DRAIN, value=None)
    path = f"/restrictions/{row.pk}/refuse/"
    assert responder.post(path, {"version": row.version, "reason": ""}).status_code == 400
    assert responder.post(path, {"version": row.version, "reason": "no"}).status_code == 302
    text = text_of(opened(responder, f"/restrictions/{row.pk}/"))
    assert "refused" in text
    assert "Bring it back" in text


def test_a_lifted_one_says_by_whom_and_why(responder: Client, small: SmallFleet) -> None:
    row = hold()
    path = f"/restrictions/{row.pk}/lift/"
    assert "stays lifted for as long as rule:rack-power goes on" in text_of(opened(responder, path))
    given = {"version": row.version, "reason": "the sensor is wrong"}
    assert responder.post(path, given).status_code == 302
    assert "the sensor is wrong" in text_of(section(opened(responder), "over"))
    response = responder.post(path, given)
    assert response.status_code == 409
    assert "already." in html_of(response)


def test_a_lease_is_made_longer_and_not_shorter(operator: Client, small: SmallFleet) -> None:
    row = hold(for_s=7200)
    path = f"/restrictions/{row.pk}/extend/"
    response = operator.post(path, {"lasts": "900"})
    assert response.status_code == 400
    assert "give a later time" in html_of(response)
    assert operator.post(path, {"lasts": "86400"}).status_code == 302
    row.refresh_from_db()
    assert row.expires_at > datetime.now(UTC) + timedelta(hours=23)


def test_the_fleet_breaker_is_thrown_with_a_reason(
    viewer: Client, responder: Client, small: SmallFleet
) -> None:
    path = "/restrictions/breaker/"
    assert viewer.get(path).status_code == 403
    assert viewer.post(path, {"open": "1", "reason": "x"}).status_code == 403
    assert responder.post(path, {"open": "1", "reason": ""}).status_code == 400
    assert not FleetBreaker.current().is_open
    for _ in range(2):  # pressed twice, it is still open
        assert responder.post(path, {"open": "1", "reason": "rules run wild"}).status_code == 302
    assert "the fleet breaker is open" in text_of(opened(viewer))
    assert "rules run wild" in text_of(opened(responder, path))
    assert responder.post(path, {"open": "0", "reason": "mended"}).status_code == 302
    assert not FleetBreaker.current().is_open
    assert AuditEntry.objects.filter(action__startswith="fleet_breaker").count() == 3


def test_a_write_needs_its_token(small: SmallFleet) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(make_user(Role.OPERATOR))
    assert client.post("/restrictions/new/", GIVEN).status_code == 403


# --- Elsewhere -----------------------------------------------------------------------------------


def test_the_fleet_page_counts_them(viewer: Client, small: SmallFleet) -> None:
    assert "restrictions in force (0) · incidents (0)" in text_of(opened(viewer, "/"))
    hold()
    hold("site oslo", kind=DRAIN, value=None)
    state.invalidate()
    text = text_of(opened(viewer, "/"))
    assert "restrictions in force (1), 1 waits for a person · incidents (0)" in text


def test_a_budget_in_force_says_what_is_drawn_of_it(viewer: Client, small: SmallFleet) -> None:
    small.report(power_w=700.0)
    lower_budget("rack", "oslo/A01", 9_000)
    row = Restriction.objects.get()
    text = text_of(html_of(viewer.get(f"/restrictions/{row.pk}/")))
    assert "rack oslo/A01 draws 9.6 of 9.0 kW now: 0.6 kW over" in text
    row.state = Restriction.State.EXPIRED
    row.save()
    assert "draws 9.6" not in text_of(html_of(viewer.get(f"/restrictions/{row.pk}/")))
