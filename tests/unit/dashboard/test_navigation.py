"""The navigation has all pages that stand for themselves."""

from __future__ import annotations

from accounts.models import User
from accounts.roles import Role
from dashboard import navigation
from dashboard.urls import urlpatterns

#: Reached from another page, which has the context that they need.
WITHIN = {
    "issue-restriction", "fleet-breaker-page", "new-channel", "new-project", "new-rule", "new-user",
    "search",
}  # fmt: skip


def test_every_page_without_parameters_is_in_the_navigation() -> None:
    pages = {
        str(each.name)
        for each in urlpatterns
        if ("<" not in str(each.pattern) and str(each.pattern).endswith("/"))
        or not str(each.pattern)
    }
    listed = {each.url_name for each in (*navigation.MAIN, *navigation.MORE)}
    assert pages - WITHIN == listed


def test_nobody_is_led_where_they_may_not_go() -> None:
    names = [each.name for each in navigation.of(User(role=Role.VIEWER), "").more]
    assert "Submit a job" not in names
    assert "Users" not in [each.name for each in navigation.of(User(role=Role.OPERATOR), "").more]
    assert "Users" in [each.name for each in navigation.of(User(role=Role.ADMIN), "").more]
    assert "Energy" in names


def test_the_page_at_hand_is_marked_also_where_it_is_among_the_further_ones() -> None:
    shown = navigation.of(User(role=Role.OPERATOR), "energy")
    assert [each.name for each in shown.more if each.is_current] == ["Energy"]
    assert shown.is_in_more
    assert not navigation.of(User(role=Role.OPERATOR), "fleet").is_in_more


def test_no_two_pages_have_one_key() -> None:
    keys = [each.key for each in (*navigation.MAIN, *navigation.MORE) if each.key]
    assert len(set(keys)) == len(keys)
