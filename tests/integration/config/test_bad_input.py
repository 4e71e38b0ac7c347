"""Requests that made a 500 once, or could: each gets an answer that says what is wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
from axes.models import AccessAttempt
from django.test import Client
from django.urls import get_resolver

from accounts.models import ApiToken
from accounts.roles import Role
from fleet import inventory
from fleet.models import HardwareModel, Site
from tests.builders.accounts import api_client, client_of
from tests.builders.agents import make_agent
from tests.builders.batches import make_batch
from tests.builders.readings import make_node
from tests.integration.config.test_every_url import ADDRESSES, API, HARMLESS_POSTS, YAML_POSTS

pytestmark = pytest.mark.django_db

DEPTH = 5_000


@pytest.fixture
def admin() -> Client:
    client = client_of(Role.ADMIN)
    client.raise_request_exception = False
    return client


@pytest.fixture
def program() -> Client:
    client = api_client(Role.ADMIN)
    client.raise_request_exception = False
    return client


def error_of(answer: Any) -> dict[str, str]:
    error: dict[str, str] = answer.json()["error"]
    return error


# --- NUL -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/jobs/%00/", "/conditions/a%00b/", "/rules/x%00/", "/%00"])
def test_nul_in_a_path_is_not_found(admin: Client, path: str) -> None:
    answer = admin.get(path.replace("%00", "\0"))
    assert answer.status_code == 404
    assert b"<h1>" in answer.content


@pytest.mark.parametrize("path", ["/queue/", "/lemons/", "/admin/fleet/site/", "/api/v1/sites"])
def test_nul_in_a_query_is_a_bad_request_that_names_the_parameter(admin: Client, path: str) -> None:
    answer = admin.get(path + "?name=a%00b&q=x")
    assert answer.status_code == 400
    assert b"name" in answer.content


def test_nul_in_a_cookie_is_a_bad_request(client: Client) -> None:
    client.raise_request_exception = False
    answer = client.get("/", headers={"Cookie": r'sessionid="aaaaaaaaaaaa\000"'})
    assert answer.status_code == 400


def test_nul_in_a_form_is_a_bad_request_that_names_the_field(admin: Client) -> None:
    answer = admin.post("/account/tokens/", {"name": "a\0b"})
    assert answer.status_code == 400
    assert b"name: NUL" in answer.content
    assert not ApiToken.objects.exists()


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
def test_a_text_that_no_database_takes_is_refused_with_its_field(
    program: Client, text: str
) -> None:
    body = json.dumps({"text": [{"x": text}]})
    answer = program.post("/api/v1/rule-check", body, content_type="application/json")
    assert answer.status_code == 400
    assert error_of(answer)["field"] == "text[0].x"


# --- Depth ---------------------------------------------------------------------------------------

DEEP = [b"[" * DEPTH, b'{"a":' * 900 + b"1" + b"}" * 900]


@pytest.mark.parametrize("body", DEEP)
def test_no_endpoint_falls_for_json_that_is_nested_deep(program: Client, body: bytes) -> None:
    for address in API:
        if address in YAML_POSTS:
            continue
        answer = program.post(address, body, content_type="application/json")
        assert 400 <= answer.status_code < 500, address


@pytest.mark.parametrize("body", [b"- " * 5_000 + b"x", b"[" * 5_000, b"{a: " * 900 + b"}" * 900])
def test_no_endpoint_falls_for_yaml_that_is_nested_deep(program: Client, body: bytes) -> None:
    paths = {*YAML_POSTS, *HARMLESS_POSTS, "/api/v1/rules", "/api/v1/playbooks", "/api/v1/jobs"}
    for path in sorted(paths):
        answer = program.post(path, body, content_type="application/yaml")
        # A check tells of it in its answer.
        assert answer.status_code in (200, 400, 422), path
        assert b"nested" in answer.content, path


def test_a_body_that_is_too_long_is_not_read(program: Client) -> None:
    body = b'{"name": "' + b"x" * 5 * 1024 * 1024 + b'"}'
    answer = program.post("/api/v1/sites", body, content_type="application/json")
    assert (answer.status_code, error_of(answer)["code"]) == (413, "too_long")


# --- Numbers, moments, places --------------------------------------------------------------------


@pytest.mark.parametrize("first", ["0" * 5_000, "-1", "9" * 5_000, "٣", "²", str(2**63)])
def test_the_queue_begins_at_a_whole_number(program: Client, first: str) -> None:
    answer = program.get("/api/v1/queue", {"first": first})
    assert (answer.status_code, error_of(answer)["field"]) == (400, "first")


@pytest.mark.parametrize("limit", ["0" * 5_000 + "x", "9" * 5_000, "٣", "²"])
def test_a_limit_of_rows_is_a_whole_number(program: Client, limit: str) -> None:
    answer = program.get("/api/v1/headroom", {"kind": "rack", "limit": limit})
    assert (answer.status_code, error_of(answer)["field"]) == (400, "limit")


MOMENTS = ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "0001-01-01", "9999-12-31"]


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("path", ["ecc-events", "xid-events", "throttle-events", "incidents"])
def test_a_moment_that_overflows_is_refused(program: Client, path: str, moment: str) -> None:
    for name in ("since", "until"):
        answer = program.get(f"/api/v1/{path}", {name: moment})
        assert (answer.status_code, error_of(answer)["field"]) == (400, name)


@pytest.mark.parametrize("moment", [*MOMENTS, "99999999999"])
def test_a_span_that_overflows_is_refused(program: Client, moment: str) -> None:
    wanted = {"kind": "gpu", "id": "1", "from": moment}
    answer = program.get("/api/v1/series", wanted)
    assert (answer.status_code, error_of(answer)["field"]) == (400, "from")


def test_a_cursor_opens_only_the_list_that_gave_it(program: Client) -> None:
    for number in range(3):
        Site.objects.create(name=f"s{number}")
    first = program.get("/api/v1/sites", {"page_size": 2}).json()
    assert [row["name"] for row in program.get(first["next"]).json()["results"]] == ["s2"]
    cursor = first["next"].partition("cursor=")[2].partition("&")[0].replace("%3A", ":")
    for path, given in (
        ("/api/v1/ecc-events", cursor),
        ("/api/v1/incidents", cursor),
        ("/api/v1/sites", "cD14"),  # p=x, as it was before
        ("/api/v1/incidents", "cD1ub3c="),
        ("/api/v1/sites", cursor[:-1]),
        ("/api/v1/sites", "é" * 300),
    ):
        answer = program.get(path, {"cursor": given})
        assert (answer.status_code, error_of(answer)["code"]) == (400, "foreign_cursor"), path


# --- Methods -------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["OPTIONS", "HEAD", "TRACE"])
def test_any_method_on_any_route_has_an_answer(admin: Client, method: str) -> None:
    answers = {address: admin.generic(method, address).status_code for address in ADDRESSES}
    assert {address: status for address, status in answers.items() if status >= 500} == {}
    assert len(get_resolver().url_patterns) > 5


# --- Forms of the admin site ---------------------------------------------------------------------

GARBAGE = ["", "²", "9" * 300, "NaN"]
FIELDS = [
    "name", "kind", "site", "rack", "node", "model", "parent", "index", "rated_w", "idle_w",
    "budget_w", "capacity_w", "derating", "feed_a", "feed_b", "cooling_zone", "height_u",
    "position_u", "position", "labels", "mem_bytes", "peer_site", "capacity_bits_per_s",
    "power_domain", "storage_endpoint",
    "username", "role", "password1", "_selected_action",
]  # fmt: skip


@pytest.mark.parametrize("value", GARBAGE)
def test_no_form_of_the_admin_site_falls_for_what_is_typed(admin: Client, value: str) -> None:
    node = make_node()
    forms = [each for each in ADDRESSES if each.startswith("/admin/") and "/add/" in each]
    forms += [f"/admin/fleet/node/{node.pk}/change/", f"/admin/fleet/rack/{node.rack_id}/change/"]
    for address in forms:
        answer = admin.post(address, dict.fromkeys(FIELDS, value))
        assert answer.status_code in (200, 400, 403), address


@pytest.mark.parametrize("given", ["aaa", "²", str(2**70)])
def test_a_selection_on_the_admin_site_that_is_no_row_is_refused(admin: Client, given: str) -> None:
    form = {"action": "delete_selected", "_selected_action": given, "index": "0"}
    for kind in ("accounts/user", "fleet/site", "fleet/gpu"):
        assert admin.post(f"/admin/{kind}/", form).status_code == 400


def test_a_login_name_that_nobody_can_have_is_a_wrong_one(client: Client) -> None:
    answer = client.post("/login/", {"username": "x" * 300, "password": "x"})
    assert answer.status_code == 200
    assert b'name="password"' in answer.content
    assert not AccessAttempt.objects.exists()


# --- Telemetry -----------------------------------------------------------------------------------


def test_a_batch_with_no_xids_is_taken(client: Client) -> None:
    _, token = make_agent("agent-1", nodes=[make_node("n1")])
    batch = json.loads(json.dumps(_plain(make_batch("agent-1", "n1", gpus=2))))
    batch["nodes"][0]["xids"] = {"ts": [], "xid": []}
    answer = client.post(
        "/api/v1/telemetry",
        json.dumps(batch),
        content_type="application/json",
        headers={"Authorization": f"Bearer {token}"},
    )
    assert answer.status_code == 202


def _plain(batch: Any) -> Any:
    import msgspec

    return msgspec.to_builtins(batch)


# --- Inventory -----------------------------------------------------------------------------------


@pytest.mark.parametrize("rated_w", [1e19, 1e18, 1e7, "1e400"])
def test_no_hardware_is_rated_beyond_its_bound(program: Client, rated_w: Any) -> None:
    body = json.dumps({"name": "x", "kind": "gpu", "rated_w": rated_w})
    answer = program.post("/api/v1/hardware-models", body, content_type="application/json")
    assert (answer.status_code, error_of(answer)["field"]) == (400, "rated_w")


@pytest.mark.parametrize("rated_w", [1e19, float("inf"), float("nan")])
def test_the_export_tells_what_an_older_version_let_in(program: Client, rated_w: float) -> None:
    make_node("n1")
    HardwareModel.objects.create(name="odd\u202e", kind="gpu", rated_w=rated_w)
    answer = program.get("/api/v1/fleet/export")
    assert answer.status_code == 200
    text = answer.content.decode()
    assert "rated_w: " in text
    with pytest.raises(inventory.InventoryError, match="hardware_models"):
        inventory.parse(text)


def test_a_model_in_use_is_not_deleted_and_few_of_its_users_are_asked(
    program: Client, django_assert_max_num_queries: Any
) -> None:
    node = make_node(gpus=40)
    model = node.gpus.get(index=0).model
    with django_assert_max_num_queries(25):
        answer = program.delete(f"/api/v1/hardware-models/{model.pk}")
    assert (answer.status_code, error_of(answer)["code"]) == (409, "in_use")
    assert "and 37 more" in error_of(answer)["message"]


def test_what_is_too_large_is_deleted_by_an_inventory(
    program: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleet.deleting.MOST_BELOW", 3)
    node = make_node(gpus=2)
    site = node.rack.site
    answer = program.delete(f"/api/v1/sites/{site.pk}")
    assert answer.status_code == 409
    assert "4 racks, nodes and GPUs are below it" in error_of(answer)["message"]
    assert program.delete(f"/api/v1/racks/{node.rack_id}").status_code == 204


def test_the_admin_site_says_what_keeps_a_row(admin: Client) -> None:
    model = make_node(gpus=4).gpus.get(index=0).model
    address = f"/admin/fleet/hardwaremodel/{model.pk}/delete/"
    assert b"and 1 more" in admin.get(address).content
    admin.post(address, {"post": "yes"})
    assert HardwareModel.objects.filter(pk=model.pk).exists()


# --- Names ---------------------------------------------------------------------------------------

ODD = ["a\u202eb", "\u2066a", "a\nb", "a\n", "\x1b[31m", "a\u061c", "a\u200f", "a\u2028b", "a\x85"]


@pytest.mark.parametrize("name", ODD)
def test_no_edge_takes_a_name_with_odd_characters(program: Client, name: str) -> None:
    posts: list[tuple[str, Any]] = [
        ("/api/v1/sites", {"name": f"x{name}x"}),
        ("/api/v1/hardware-models", {"name": f"x{name}x", "kind": "gpu", "rated_w": 1}),
        ("/api/v1/agents", {"name": f"x{name}x"}),
        ("/api/v1/projects", {"name": f"x{name}x"}),
        ("/api/v1/notification-channels",
         {"name": f"x{name}x", "kind": "webhook", "target": "https://example.org/x"}),
    ]  # fmt: skip
    for path, body in posts:
        answer = program.post(path, json.dumps(body), content_type="application/json")
        assert answer.status_code == 400, path
        assert error_of(answer)["field"].endswith("name"), path
    with pytest.raises(inventory.InventoryError, match="name"):
        inventory.parse(json.dumps({"sites": [{"name": f"x{name}x"}]}))


@pytest.mark.parametrize("name", ODD)
def test_no_form_takes_a_name_with_odd_characters(admin: Client, name: str) -> None:
    assert admin.post("/account/tokens/", {"name": f"x{name}x"}).status_code == 400
    admin.post("/admin/fleet/site/add/", {"name": f"x{name}x", "time_zone": "UTC"})
    assert not Site.objects.exists()
    assert not ApiToken.objects.exists()


def test_an_older_name_is_shown_with_its_odd_characters_spelled_out(admin: Client) -> None:
    Site.objects.create(name="pay\u202eload")
    page = admin.get("/admin/fleet/site/").content.decode()
    assert "pay⟨U+202E⟩load" in page
    assert "\u202e" not in page
