"""The pages of rules, their live panels, the editor, and what people do with versions."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from accounts.models import AuditEntry, User
from accounts.roles import Role
from policies.documents import life
from policies.rules import tasks
from policies.rules.actions import RULES
from policies.rules.builtin import load
from policies.rules.machine import Phase
from policies.rules.models import RuleFault, RuleReplay, RuleVersion
from tests.builders.accounts import client_of, make_user
from tests.builders.fleet import SmallFleet
from tests.builders.policies import (
    make_episode,
    make_outcome,
    make_replay,
    make_rule,
    rule_text,
    set_phases,
)
from tests.html import html_of
from tests.integration.dashboard.test_throttle_page import text_of

URL = "/rules/"
REVIEW = "/documents/rules/"


@pytest.fixture(autouse=True)
def fleet(small: SmallFleet) -> SmallFleet:
    return small


@pytest.fixture
def operator() -> Client:
    return client_of(Role.OPERATOR)


def opened(client: Client, path: str = URL, status: int = 200) -> str:
    response = client.get(path)
    assert response.status_code == status
    return html_of(response)


def followed(client: Client, path: str, **given: Any) -> str:
    response = client.post(path, given, follow=True)
    assert response.status_code == 200
    return text_of(html_of(response))


def names_of(html: str) -> list[str]:
    return re.findall(r'id="rule-[^"]+" href="/rules/([^/"]+)/"', html)


class TestList:
    def test_nobody_sees_it_without_logging_in(self, client: Client) -> None:
        make_rule()
        for path in (URL, "/live/rules", f"{URL}rack-hot/", "/live/rules/rack-hot"):
            assert client.get(path).status_code == 302
        assert client.get(f"{URL}_new/").status_code == 302

    def test_without_any_it_says_what_brings_them(self, viewer: Client) -> None:
        text = text_of(opened(viewer))
        assert "No rules yet" in text
        assert "python manage.py prepare" in text

    def test_the_answer_says_which_fire_and_where(self, viewer: Client, fleet: SmallFleet) -> None:
        make_rule("quiet")
        hot = make_rule("hot")
        phases = {"oslo/A01": Phase.FIRING, "oslo/A02": Phase.CLEARING, "oslo/A03": Phase.PENDING}
        set_phases(hot, phases)
        html = opened(viewer)
        assert "2 rules active · 1 fires on 2 scopes: hot 2 · 1 scope pending" in text_of(html)
        assert names_of(html) == ["hot", "quiet"]
        assert f'href="/racks/{fleet.racks["oslo/A01"].pk}/"' in html

    def test_shadows_do_not_count_as_firing(self, viewer: Client) -> None:
        set_phases(make_rule(to="shadow"), {"oslo/A01": Phase.FIRING})
        text = text_of(opened(viewer))
        assert "none fires" in text
        assert "shadow: 1" in text

    def test_what_is_shown_is_in_the_url(self, viewer: Client) -> None:
        make_rule("quiet")
        set_phases(make_rule("hot"), {"oslo/A01": Phase.FIRING})
        make_rule("sketch", to="draft")
        faulty = make_rule("faulty")
        now = timezone.now()
        RuleFault.objects.create(
            version=faulty, status="division", message="it divides by zero", count=3, first_at=now,
            last_at=now,
        )  # fmt: skip
        shown = {
            "?show=firing": ["hot"],
            "?show=draft": ["sketch"],
            "?show=faulty": ["faulty"],
            "?search=QUI": ["quiet"],
            "?show=%7F": ["hot", "faulty", "quiet", "sketch"],
        }
        for query, names in shown.items():
            assert names_of(opened(viewer, URL + query)) == names
        assert "No rule matches “zzz”" in text_of(opened(viewer, f"{URL}?search=zzz"))
        assert "1 cannot be evaluated everywhere" in text_of(opened(viewer))

    def test_a_poll_brings_the_answer_along_and_then_nothing(self, viewer: Client) -> None:
        version = make_rule()
        html = opened(viewer, "/live/rules?search=rack")
        assert 'id="rules-answer" hx-swap-oob="true"' in html
        (path,) = re.findall(r'hx-get="(/live/rules[^"]+)"', html)
        path = path.replace("&amp;", "&")
        assert viewer.get(path).status_code == 204
        set_phases(version, {"oslo/A01": Phase.FIRING})
        assert viewer.get(path).status_code == 200

    def test_all_that_come_with_headroom_are_shown(
        self, viewer: Client, django_assert_max_num_queries: Any
    ) -> None:
        names = load()
        with django_assert_max_num_queries(26):
            html = opened(viewer)
        assert sorted(names_of(html)) == sorted(names)
        for name in names:
            opened(viewer, f"{URL}{name}/")

    def test_a_thousand_rules_are_a_page_at_a_time(
        self, viewer: Client, django_assert_max_num_queries: Any
    ) -> None:
        now = timezone.now()
        RuleVersion.objects.bulk_create(
            RuleVersion(name=name, number=1, text=rule_text(name), state="active",
                        author="ada", reviewer="bob", created_at=now, changed_at=now)
            for name in (f"rule-{number:04}" for number in range(1000))
        )  # fmt: skip
        with django_assert_max_num_queries(26):
            html = opened(viewer)
        assert len(names_of(html)) == 50
        assert "1,000 rules active" in text_of(html)


class TestOne:
    def test_one_that_is_not_there_is_not_found(self, viewer: Client) -> None:
        opened(viewer, f"{URL}nothing/", 404)
        make_rule()
        for query in ("?version=9", "?version=x", "?version=99999999999"):
            opened(viewer, f"{URL}rack-hot/{query}", 404)

    def test_it_says_where_it_stands_and_what_it_does(self, viewer: Client) -> None:
        version = make_rule()
        set_phases(version, {"oslo/A01": Phase.FIRING, "oslo/A02": Phase.PENDING})
        make_episode(version)
        text = text_of(opened(viewer, f"{URL}rack-hot/"))
        assert "rack-hot v1, active: fires on 1 scope · 1 pending" in text
        assert "Fires when hottest_c &gt; 80.0 for 4 s" in text
        assert "no_new_launches on self, for 1 min at a time" in text
        assert "open an incident, and run cool-down" in text
        assert "Rack oslo/A01 is hot" in text

    def test_a_rule_of_a_text_that_is_no_longer_taken_is_told(self, viewer: Client) -> None:
        now = timezone.now()
        RuleVersion.objects.create(
            name="old", number=1, text="name: old", state="active", author="ada", reviewer="bob",
            created_at=now, changed_at=now,
        )  # fmt: skip
        assert "does not take the text of v1" in text_of(opened(viewer, f"{URL}old/"))
        assert "this release does not take its text" in text_of(opened(viewer))

    def test_two_versions_are_compared(self, viewer: Client) -> None:
        make_rule()
        make_rule(text=rule_text(above=85.0), to="draft")
        make_rule(text=rule_text(above=90.0), to="draft")
        html = opened(viewer, f"{URL}rack-hot/")
        assert "From v2 to v3" in text_of(html)
        text = text_of(opened(viewer, f"{URL}rack-hot/?old=1&new=3"))
        assert "From v1 to v3" in text
        assert "when hottest_c &gt; 80.0 hottest_c &gt; 90.0" in text
        assert "-when: hottest_c &gt; 80.0 +when: hottest_c &gt; 90.0" in text

    def test_hostile_texts_are_escaped(self, viewer: Client) -> None:
        hostile = rule_text().replace("Says when", '"<img src=x onerror=alert(1)>"')
        hostile = hostile.replace('"<img', "'<img").replace(')>"', ")>'")
        make_rule(text=hostile.replace("description: ", "description: >\n  "))
        for path in (URL, f"{URL}rack-hot/"):
            html = opened(viewer, path)
            assert "<img src=x" not in html
            assert "&lt;img src=x" in html

    def test_a_poll_brings_what_changed_and_then_nothing(self, viewer: Client) -> None:
        version = make_rule()
        (path,) = re.findall(r'hx-get="(/live/rules/[^"]+)"', opened(viewer, f"{URL}rack-hot/"))
        assert viewer.get(path).status_code == 204
        set_phases(version, {"oslo/A01": Phase.FIRING})
        assert "fires on 1 scope" in text_of(html_of(viewer.get(path)))


class TestVersions:
    def test_a_viewer_has_no_buttons_and_no_way_around_them(self, viewer: Client) -> None:
        make_rule(to="draft")
        html = opened(viewer, f"{URL}rack-hot/")
        assert 'method="post"' not in html[html.index("<main") : html.index("</main>")]
        assert "Write a rule" not in opened(viewer)
        for client in (viewer, client_of(Role.RESPONDER)):
            for what in (f"{REVIEW}rack-hot/1/promote", f"{REVIEW}rack-hot/1/retire",
                         f"{URL}rack-hot/replay"):  # fmt: skip
                given = {"to": "active", "why": "x", "range": "1h"}
                assert client.post(what, given).status_code == 403
            for path in (f"{URL}_new/", f"{URL}rack-hot/edit/"):
                assert client.get(path).status_code == 403
            assert client.post(f"{URL}_check", {"text": "x"}).status_code == 403
        assert RuleVersion.objects.get().state == "draft"

    def test_another_site_cannot_do_it(self, operator: Client) -> None:
        make_rule(to="draft")
        operator.handler.enforce_csrf_checks = True
        assert operator.post(f"{REVIEW}rack-hot/1/promote", {"to": "active"}).status_code == 403

    def test_somebody_else_lets_a_draft_count(self, operator: Client) -> None:
        make_rule(to="draft")
        said = followed(operator, f"{REVIEW}rack-hot/1/promote", to="canary", share="25")
        assert "rack-hot v1 is canary now" in said
        assert "v1, canary on 25 % of the racks" in said
        assert "rack-hot v1 is active now" in followed(
            operator, f"{REVIEW}rack-hot/1/promote", to="active"
        )
        assert AuditEntry.objects.filter(action="rule.active").count() == 1

    def test_its_author_cannot_and_sees_no_button(self) -> None:
        author = make_user(Role.OPERATOR)
        client = Client()
        client.force_login(author)
        life.draft(RULES, author, rule_text())
        html = opened(client, f"{URL}rack-hot/")
        assert "you wrote it: somebody else has to let it count" in html
        assert 'value="shadow"' in html
        assert 'value="active"' not in html
        said = followed(client, f"{REVIEW}rack-hot/1/promote", to="active")
        assert "somebody else has to let it count: ask another operator" in said
        assert RuleVersion.objects.get().state == "draft"

    @pytest.mark.parametrize("share", ["0", "100", "-5", "half", "nan"])
    def test_a_share_that_is_none_is_refused(self, operator: Client, share: str) -> None:
        make_rule(to="draft")
        followed(operator, f"{REVIEW}rack-hot/1/promote", to="canary", share=share)
        assert RuleVersion.objects.get().state == "draft"

    def test_no_state_is_skipped_backwards_or_made_up(self, operator: Client) -> None:
        make_rule()
        assert "is active already" in followed(operator, f"{REVIEW}rack-hot/1/promote", to="shadow")
        assert "has no state" in followed(operator, f"{REVIEW}rack-hot/1/promote", to="best")

    def test_a_version_is_retired_with_a_reason(self, operator: Client) -> None:
        make_rule()
        assert "Say why" in followed(operator, f"{REVIEW}rack-hot/1/retire", why=" ")
        assert "is retired" in followed(operator, f"{REVIEW}rack-hot/1/retire", why="noisy")
        text = text_of(opened(operator, f"{URL}rack-hot/"))
        assert "every version is retired" in text
        assert "is retired already" in followed(operator, f"{REVIEW}rack-hot/1/retire", why="noisy")
        assert names_of(opened(operator)) == ["rack-hot"]


class TestReplays:
    @pytest.fixture
    def asked(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        found: list[int] = []
        monkeypatch.setattr(tasks.replay, "delay", found.append)
        return found

    def test_one_is_asked_for_and_waited_for(self, operator: Client, asked: list[int]) -> None:
        make_rule()
        response = operator.post(f"{URL}rack-hot/replay", {"version": "1", "range": "6h"})
        row = RuleReplay.objects.get()
        assert asked == [row.pk]
        assert response["Location"] == f"{URL}rack-hot/?replay={row.pk}#replay-title"
        assert (row.end_at - row.start_at).total_seconds() == 6 * 3600
        html = opened(operator, f"{URL}rack-hot/?replay={row.pk}")
        assert "has waited for a worker since" in text_of(html)
        (path,) = re.findall(r'hx-get="(/live/replays/[^"]+)"', html)
        assert operator.get(path).status_code == 204

    def test_it_is_shown_beside_the_active_version_on_one_axis(self, viewer: Client) -> None:
        make_rule()
        make_replay(make_rule(text=rule_text(above=85.0), to="draft"))
        html = opened(viewer, f"{URL}rack-hot/")
        text = text_of(html)
        assert "v2, replayed : would have fired 2 times on 2 scopes for 40 min in all" in text
        assert "restricted no_new_launches 2 times for 20 min" in text
        assert "delayed 3 jobs by 7 min in all, paged 2 times ; 1 went on at the end" in text
        assert "v1, active : would have fired 5 times" in text
        rows = re.findall(r'class="axis-row [^>]* aria-label="([^"]+)"', html)
        assert [row for row in rows if row.startswith("v2")] == [
            "v2, replayed: fires on 2 scopes at most",
            "v2, replayed: fired 2 times",
            "v2, replayed: no_new_launches, 2 times",
            "v2, replayed: paged 2 times",
        ]
        assert 'hx-get="/live/replays' not in html

    def test_one_without_an_active_version_or_a_firing_says_so(self, viewer: Client) -> None:
        version = make_rule(to="draft")
        start = timezone.now().timestamp() - 3600
        told = {"not_recorded": ["xid_recent"], "without_reservations": ["power_use"]}
        empty = make_outcome(start, 0, delayed_jobs=0, **told)
        make_replay(version, result={"version": empty, "active_number": None})
        text = text_of(opened(viewer, f"{URL}rack-hot/"))
        assert "would have fired 0 times" in text
        assert "No other version was active beside it" in text
        assert "Not recorded, so never known here: xid_recent" in text
        assert "without what jobs had reserved: power_use." in text

    def test_one_that_runs_says_how_far_it_is_until_it_is_over(self, viewer: Client) -> None:
        end = timezone.now()
        given = {"start_at": end - timedelta(hours=24), "end_at": end, "result": None}
        row = make_replay(make_rule(), state="running", done_s=0.419 * 86_400, **given)
        html = opened(viewer, f"{URL}rack-hot/")
        assert "is running: 41 % of 24 h" in text_of(html)
        assert '<progress max="86400" value="36202" aria-label="Replayed">' in html
        (path,) = re.findall(r'hx-get="(/live/replays/[^"]+)"', html)
        assert viewer.get(path).status_code == 204
        RuleReplay.objects.update(done_s=86_399.0)
        assert "99 % of 24 h" in text_of(html_of(viewer.get(path)))
        RuleReplay.objects.update(state="failed", error="the worker that ran it has ended")
        said = text_of(html_of(viewer.get(path)))
        assert f"v{row.version.number} failed at 99 % of 24 h: the worker that ran it" in said

    def test_one_that_failed_says_why(self, viewer: Client) -> None:
        make_replay(make_rule(), state="failed", error="MemoryError: too much", result=None)
        assert "failed: MemoryError: too much" in text_of(opened(viewer, f"{URL}rack-hot/"))

    def test_a_span_that_cannot_be_is_refused(self, operator: Client, asked: list[int]) -> None:
        make_rule()
        followed(operator, f"{URL}rack-hot/replay", version="1", range="soon")
        followed(operator, f"{URL}rack-hot/replay", version="1", range="90d")
        assert asked == []


class TestEditor:
    def test_it_starts_from_the_version_that_is_shown(self, operator: Client) -> None:
        make_rule()
        make_rule(text=rule_text(above=85.0), to="draft")
        assert "hottest_c &gt; 80.0" in opened(operator, f"{URL}rack-hot/edit/")
        assert "hottest_c &gt; 85.0" in opened(operator, f"{URL}rack-hot/edit/?version=2")

    def test_the_text_that_it_offers_can_be_kept(self, operator: Client) -> None:
        html = opened(operator, f"{URL}_new/")
        assert "It can be used: of each rack" in text_of(html)
        assert "power_headroom_w" in html

    def test_a_draft_is_kept_with_its_author(self, operator: Client) -> None:
        text = rule_text().replace("\n", "\r\n")
        said = followed(operator, f"{URL}_new/", text=text, note="for summer")
        assert "rack-hot v1 is a draft" in said
        version = RuleVersion.objects.get()
        assert version.text == rule_text()
        assert version.author == User.objects.get(role=Role.OPERATOR).username
        assert version.note == "for summer"

    def test_faults_are_shown_at_their_lines(self, operator: Client) -> None:
        text = rule_text().replace("hottest_c > 80.0", "hottest_x > 80.0")
        response = operator.post(f"{URL}_new/", {"text": text})
        assert response.status_code == 400
        html = html_of(response)
        assert 'data-line="6" data-column="7"' in html
        assert "line 6, column 7" in text_of(html)
        assert "6when: hottest_x &gt; 80.0" in re.sub(r"<[^>]+>", "", html)
        assert "nothing has been kept" in text_of(html)
        assert not RuleVersion.objects.exists()

    @pytest.mark.parametrize(
        "text", ["", "]", "a: &x 1", "\t", "name: [", "x" * 120_000, "when: \x07", "<b>: {"]
    )
    def test_what_is_no_rule_is_told(self, operator: Client, text: str) -> None:
        response = operator.post(f"{URL}_new/", {"text": text})
        assert response.status_code == 400
        assert "<b>: {" not in html_of(response)
        assert operator.post(f"{URL}_check", {"text": text}).status_code == 200

    def test_a_check_keeps_nothing(self, operator: Client) -> None:
        good = html_of(operator.post(f"{URL}_check", {"text": rule_text()}))
        assert "It can be used" in good
        bad = html_of(operator.post(f"{URL}_check", {"text": "name: X"}))
        assert 'data-line="' in bad
        assert not RuleVersion.objects.exists()
