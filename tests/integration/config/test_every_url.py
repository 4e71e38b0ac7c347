"""Every URL that the project answers, found by walking the resolver: who gets in, and how."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

import pytest
from django.http import HttpResponseBase
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from accounts.roles import Role
from tests.builders.accounts import bearer, client_of, make_token, make_user

pytestmark = pytest.mark.django_db

#: What anybody may have, by route. The last one gives nothing but to who has a link for it.
PUBLIC = {"/login/", "/healthz", "/readyz", "/password/link/"}
YAML_POSTS = {"/api/v1/fleet/plan", "/api/v1/fleet/apply"}
#: API routes whose POST changes nothing.
CHECKED = ("rule", "playbook", "class", "slo", "rollout", "admission-policy")
HARMLESS_POSTS = {"/api/v1/fleet/plan", *(f"/api/v1/{kind}-check" for kind in CHECKED)}
#: API routes of one thing: there is nothing to choose from.
SINGLE = {
    *("/api/v1/me", "/api/v1/schema", "/api/v1/schemas/job-spec"),
    *("/api/v1/fleet-breaker", "/api/v1/admission-policy"),
}
#: Posts of agents: no user's token opens them.
AGENTS_ONLY = {"/api/v1/telemetry"}

INLINE = [
    re.compile(r"<script(?![^>]*\ssrc=)(?![^>]*application/json)[^>]*>"),
    re.compile(r"<style[\s>]"),
    re.compile(r"<[^>]*\s(style|on\w+)="),
]

WRITES = ["post", "put", "patch", "delete"]


def _routes(resolver: URLResolver, prefix: str = "") -> Iterator[str]:
    for entry in resolver.url_patterns:
        route = prefix + str(entry.pattern)
        if isinstance(entry, URLResolver):
            yield from _routes(entry, route)
        elif isinstance(entry, URLPattern):
            yield route


def _example(route: str) -> str:
    """Return an address that a route matches: 1 for each of its parts."""
    route = re.sub(r"\(\?P<\w+>[^()]*\)|<(?:\w+:)?\w+>", "1", route)
    return "/" + re.sub(r"\^|\$|\\Z|\\|\?", "", route)


ADDRESSES = sorted({_example(route) for route in _routes(get_resolver())})
API = [address for address in ADDRESSES if address.startswith("/api/")]


def _shuts_out(response: HttpResponseBase) -> bool:
    """Say whether an answer gives nothing away: to the login, refused, or no such method."""
    if response.status_code in (301, 302):
        # The admin site's pages send each other's strangers around; all of them are walked here.
        return response["Location"].startswith(("/login/", "/admin/"))
    return response.status_code in (401, 403, 405)


def test_the_walk_finds_the_urls() -> None:
    expected = {"/account/", "/metrics", "/api/v1/me", "/api/v1/telemetry", "/admin/"}
    assert not (expected | PUBLIC) - set(ADDRESSES)
    assert len(ADDRESSES) > 40


@pytest.mark.parametrize("method", ["get", *WRITES])
def test_strangers_are_kept_out(client: Client, method: str) -> None:
    answers = {each: getattr(client, method)(each) for each in ADDRESSES}
    assert _wrong({each: answers[each] for each in answers if each not in PUBLIC}, _shuts_out) == {}
    if method == "get":
        assert _wrong(answers, _is_not_kept) == {}


def test_a_token_that_is_none_is_refused_everywhere(client: Client) -> None:
    headers = bearer("hru_" + "x" * 43)
    answers = {each: client.get(each, headers=headers) for each in API if each not in AGENTS_ONLY}
    assert _wrong(answers, lambda answer: answer.status_code in (401, 405)) == {}


@pytest.mark.parametrize("method", WRITES)
def test_viewers_write_nothing_through_the_api(client: Client, method: str) -> None:
    headers = bearer(make_token(make_user(Role.VIEWER)))
    answers = {
        each: getattr(client, method)(each, data=b"", content_type="", headers=headers)
        for each in API
        if each not in HARMLESS_POSTS
    }
    assert _wrong(answers, lambda answer: answer.status_code in (401, 403, 405)) == {}


def test_no_list_takes_a_filter_that_there_is_not_for_none() -> None:
    headers = bearer(make_token(make_user(Role.ADMIN)))
    lists = [
        each for each in API if "/1" not in each.removeprefix("/api/v1") and each not in SINGLE
    ]
    given = {each: Client(headers=headers).get(f"{each}?sitee=oslo") for each in lists}
    # Agents ask elsewhere, and some addresses are for posts alone.
    answers = {each: found for each, found in given.items() if found.status_code not in (401, 405)}
    assert len(answers) > 50
    assert _wrong(answers, lambda answer: answer.status_code == 400) == {}


def test_writes_from_another_site_are_refused() -> None:
    """A browser that is logged in as admin, and a form elsewhere that knows no CSRF token."""
    client = client_of(Role.ADMIN)
    client.handler.enforce_csrf_checks = True
    answers = {each: client.post(each, {"x": "1"}) for each in ADDRESSES if each not in API}
    for each in API:
        form = "application/yaml" if each in YAML_POSTS else "application/json"
        answers[each] = client.post(each, "{}", content_type=form)
    assert _wrong(answers, lambda answer: answer.status_code in (401, 403, 405)) == {}


@pytest.fixture(scope="module")
def shown(module_db: None) -> dict[str, tuple[HttpResponseBase, str]]:
    """What an admin gets from each address, with the page where it is one."""
    client = client_of(Role.ADMIN)
    client.raise_request_exception = False
    answers = {each: client.get(each) for each in [*ADDRESSES, "/no/such/page"]}
    return {
        each: (answer, _page(answer) if not each.startswith("/api/") else "")
        for each, answer in answers.items()
    }


def _page(answer: HttpResponseBase) -> str:
    is_page = answer["Content-Type"].startswith("text/html")
    return b"".join(answer).decode() if is_page else ""


def test_every_answer_carries_the_policy(shown: dict[str, tuple[HttpResponseBase, str]]) -> None:
    def is_guarded(answer: HttpResponseBase) -> bool:
        policy = answer.headers.get("Content-Security-Policy", "")
        return (
            "default-src 'none'" in policy
            and "unsafe" not in policy
            and answer.headers.get("X-Frame-Options") == "DENY"
            and answer.headers.get("X-Content-Type-Options") == "nosniff"
        )

    assert _wrong({each: answer for each, (answer, _) in shown.items()}, is_guarded) == {}


def test_no_page_has_anything_inline(shown: dict[str, tuple[HttpResponseBase, str]]) -> None:
    """The policy would refuse it: what is inline does not work. Django's own pages included."""
    pages = {each: page for each, (_, page) in shown.items() if page}
    assert len(pages) > 40
    assert [url for url, page in pages.items() if any(each.search(page) for each in INLINE)] == []


def test_no_answer_is_kept_by_a_browser_or_a_proxy(
    shown: dict[str, tuple[HttpResponseBase, str]],
) -> None:
    """Polls are answered with 304 all the same."""
    answers = {each: answer for each, (answer, _) in shown.items() if each in ADDRESSES}
    assert _wrong(answers, _is_not_kept) == {}


def _is_not_kept(answer: HttpResponseBase) -> bool:
    return "no-store" in answer.get("Cache-Control", "")


def _wrong(
    answers: Mapping[str, HttpResponseBase], right: Callable[[HttpResponseBase], bool]
) -> dict[str, int]:
    """Return the addresses whose answers are not right, with their statuses."""
    return {each: answer.status_code for each, answer in answers.items() if not right(answer)}
