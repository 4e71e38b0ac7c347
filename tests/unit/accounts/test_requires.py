from __future__ import annotations

import pytest
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory

from accounts.decorators import requires
from accounts.models import User
from accounts.roles import Capability, Role


@requires(Capability.EDIT_FLEET)
def edit(_request: HttpRequest, pk: int) -> HttpResponse:
    return HttpResponse(f"edited {pk}")


def _request(user: User | AnonymousUser, **headers: str) -> HttpRequest:
    request = RequestFactory().get("/racks/7/?tab=power", headers=headers)
    request.user = user
    return request


def test_who_may_gets_through() -> None:
    response = edit(_request(User(role=Role.OPERATOR)), pk=7)
    assert isinstance(response, HttpResponse)
    assert response.content == b"edited 7"


@pytest.mark.parametrize("user", [User(role=Role.VIEWER), User(role=Role.ADMIN, is_active=False)])
def test_who_may_not_is_told_so(user: User) -> None:
    with pytest.raises(PermissionDenied, match="may not edit fleet"):
        edit(_request(user), pk=7)


def test_strangers_are_sent_to_the_login_and_back() -> None:
    response = edit(_request(AnonymousUser()), pk=7)
    assert response.status_code == 302
    assert response["Location"] == "/login/?next=/racks/7/%3Ftab%3Dpower"


def test_a_panel_sends_the_whole_page_to_the_login() -> None:
    headers = {"HX-Request": "true", "HX-Current-URL": "http://evil.example/racks/?site=oslo"}
    response = edit(_request(AnonymousUser(), **headers), pk=7)
    assert response.status_code == 401
    assert response["HX-Redirect"] == "/login/?next=/racks/%3Fsite%3Doslo"


def test_a_script_that_fetches_data_gets_no_login_page() -> None:
    response = edit(_request(AnonymousUser(), **{"Sec-Fetch-Dest": "empty"}), pk=7)
    assert response.status_code == 401
    assert response["Content-Type"] == "text/plain"
