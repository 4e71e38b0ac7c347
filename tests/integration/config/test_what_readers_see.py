"""All that the server answers, to each reader: nothing names what its reader may not see.

Two projects have jobs of every sort, of which all that can be told is marked. Each reader walks all
URLs that the resolver knows, in all forms. Which marks a reader may meet, docs/reference/roles.md
says.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from django.db.models import Max, Model
from django.http import HttpResponseBase
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from accounts.models import User
from accounts.roles import Role
from admission.bookings.models import Booking
from admission.curtailments.models import Curtailment
from admission.directives.models import Directive
from admission.energy.models import Budget
from admission.jobs.models import Job
from dashboard import state
from dashboard.conditional import SHARED
from fleet.models import Gpu, Node, Rack
from policies.incidents.models import Delivery, Incident, Silence
from policies.playbooks.models import PlaybookRun
from policies.restrictions.models import Restriction
from policies.rules.models import RuleEpisode, RuleReplay
from telemetry.models import ReportedJob, ThrottleEvent
from tests.builders.accounts import bearer, make_token, make_user
from tests.builders.agents import make_agent
from tests.builders.memory import forget_all
from tests.builders.two_projects import NAMED, SAID, SECRET, SORTS, Marked, World, make_world

REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "roles.md"

ABSENT = "a-job-that-is-not-there"


# --- What the table says --------------------------------------------------------------------------

#: What is marked, by the lines of the table.
LINES = {
    "name, phases": ("name", "phase"),
    "project": ("project",),
    "owner, why it is held": ("owner", "hold"),
    "labels, image, data sets": ("label", "image"),
    "command and environment": SECRET,
    "output": SAID,
}


@cache
def _table() -> dict[str, dict[str, bool]]:
    """Return by kind of reader which marks the reference lets it see."""
    text = REFERENCE.read_text().partition("## What a reader sees of a job")[2]
    head, _, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.partition("\n\n## ")[0].splitlines()
        if line.startswith("|")
    ]
    found: dict[str, dict[str, bool]] = {kind: {} for kind in head[1:]}
    for name, *cells in rows:
        for mark in LINES.get(name, ()):
            for kind, cell in zip(head[1:], cells, strict=True):
                found[kind][mark] = cell == "yes"
    return found


def test_the_table_speaks_of_all_that_is_marked() -> None:
    table = _table()
    kinds = {"its project", "other ML users", "operators", "watchers", "an agent on its nodes"}
    assert set(table) == kinds
    assert all(set(row) == {*NAMED, *SECRET, *SAID} for row in table.values())


@dataclass
class Reader:
    """Somebody who asks. ``kinds``: what the table calls it, for jobs of mine and of theirs."""

    name: str
    client: Client
    kinds: tuple[str, str] | None
    #: every address of each route, with queries, HTMX and OPTIONS; others ask for the first of each
    asks_all: bool = False
    #: what it met, by project and mark
    met: set[tuple[str, str]] = field(default_factory=set)

    def asks(self, route: str) -> bool:
        """Say whether the reader comes there at all. Tokens open the API, staff the admin site."""
        is_there = "sessionid" in self.client.cookies or route.startswith("api/")
        if route == "api/v1/schema":
            return self.asks_all  # it takes seconds, and is the same for all
        is_staff = self.asks_all or self.name in (Role.ADMIN, Role.OPERATOR)
        return self.kinds is None or (is_there and (is_staff or not route.startswith("admin/")))

    def may_see(self, place: int, mark: str) -> bool:
        return self.kinds is not None and _table()[self.kinds[place]][mark]


OWN, OTHER, OPERATES, WATCHES, AGENT = (
    "its project", "other ML users", "operators", "watchers", "an agent on its nodes"
)  # fmt: skip


def _browser(user: User) -> Client:
    client = Client(raise_request_exception=False)
    client.force_login(user)
    return client


def _readers(world: World) -> list[Reader]:
    mine, theirs = world.mine.member, world.theirs.member
    token = Client(headers=bearer(make_token(mine)), raise_request_exception=False)
    _, secret = make_agent("of-mine", nodes=[world.fleet.nodes[world.mine.node]])
    agent = Client(headers=bearer(secret), raise_request_exception=False)
    watchers = [
        Reader(role.value, _browser(make_user(role)), (kind, kind))
        for role, kind in (
            (Role.ADMIN, OPERATES),
            (Role.OPERATOR, OPERATES),
            (Role.RESPONDER, WATCHES),
            (Role.VIEWER, WATCHES),
        )
    ]
    return [
        # Those who see all come first: what caches keep of them is there for those who do not.
        *watchers,
        Reader("member of mine", _browser(mine), (OWN, OTHER), asks_all=True),
        Reader("member of theirs", _browser(theirs), (OTHER, OWN)),
        Reader("token of a member of mine", token, (OWN, OTHER)),
        Reader("member of neither", _browser(make_user(Role.ML_USER)), (OTHER, OTHER)),
        Reader("agent on a node of mine", agent, (AGENT, OTHER)),
        Reader("nobody", Client(raise_request_exception=False), None),
    ]


#: Who sees what another of these sees: every role walks all in the slow test.
ALIKE = (Role.ADMIN, Role.RESPONDER)


def _one_of_each(readers: list[Reader]) -> list[Reader]:
    """Return the readers without those whose role sees of jobs what another role sees."""
    return [each for each in readers if each.name not in ALIKE]


# --- Where to -------------------------------------------------------------------------------------


def _routes(resolver: URLResolver, prefix: str = "") -> Iterator[str]:
    for entry in resolver.url_patterns:
        route = prefix + str(entry.pattern)
        if isinstance(entry, URLResolver):
            yield from _routes(entry, route)
        elif isinstance(entry, URLPattern):
            yield route


_PARAM = re.compile(r"\(\?P<(\w+)>[^()]*\)|<(?:\w+:)?(\w+)>")
#: In place of the names of jobs: what a reader may not see is asked for apart.
JOB = "{job}"


def _ids(*models: type[Model]) -> list[str]:
    """Return all ids from 1 on, and one more than there are."""
    most = max(model._default_manager.aggregate(most=Max("pk"))["most"] or 0 for model in models)
    return [str(number) for number in range(1, most + 2)]


def _samples() -> dict[tuple[str, str], list[str]]:
    """Return values by what stands before a parameter in its route, and the parameter's name."""
    gpus, nodes = [list(map(str, m.objects.values_list("pk", flat=True))) for m in (Gpu, Node)]
    racks = list(map(str, Rack.objects.values_list("pk", flat=True)))
    some = ["1", "2"]
    found = {
        ("racks", "rack_id"): racks, ("nodes", "node_id"): nodes, ("gpus", "gpu_id"): gpus[3::4],
        ("restrictions", "restriction_id"): _ids(Restriction),
        ("restrictions", "pk"): _ids(Restriction),
        ("curtailments", "curtailment_id"): _ids(Curtailment),
        ("curtailments", "pk"): _ids(Curtailment),
        ("bookings", "pk"): _ids(Booking), ("tariffs", "pk"): some,
        ("budgets", "pk"): _ids(Budget),
        ("incidents", "number"): _ids(Incident), ("INC-", "number"): _ids(Incident),
        ("runs", "run_id"): _ids(PlaybookRun), ("playbook-runs", "pk"): _ids(PlaybookRun),
        ("silences", "pk"): _ids(Silence), ("silences", "silence_id"): some,
        ("notifications", "pk"): _ids(Delivery), ("throttle-events", "pk"): _ids(ThrottleEvent),
        ("directives", "pk"): some,
        ("replays", "replay_id"): _ids(RuleReplay),
        ("rule-episodes", "pk"): _ids(RuleEpisode), ("rule-replays", "pk"): some,
        ("jobs", "name"): [JOB, ABSENT], ("conditions", "site"): ["oslo"],
        ("places", "kind"): ["zone", "power_domain", "rack", "site"],
        ("kind", "name"): ["oslo/hall-1", "oslo/feed-a1", "oslo/A01", "oslo"],
        ("rules", "name"): ["rack-hot"], ("playbooks", "name"): ["cool-down"],
        ("rollouts", "name"): ["driver"],
        ("slos", "name"): ["training-begins"], ("classes", "name"): ["high-density-training"],
        ("admission-policies", "name"): ["steady"],
        ("documents", "plural"): ["admission-policies", "classes", "slos", "rules", "playbooks"],
        ("plural", "name"): ["steady", "high-density-training", "training-begins", "rack-hot"],
        ("projects", "name"): ["{project}", ABSENT], ("_change", "name"): ["{project}"],
        ("versions", "number"): ["1"],
        ("name", "number"): ["1"], ("name", "verb"): ["hold", "other"],
        ("number", "verb"): ["comment"], ("run_id", "verb"): ["pause"],
        ("agents", "agent_id"): some, ("channels", "channel_id"): some, ("tokens", "pk"): some,
        ("users", "username"): ["{member}", ABSENT], ("sessions", "handle"): some,
        ("users", "user_id"): _ids(User), ("tokens", "token_id"): some,
        ("user_id", "verb"): ["activate"],
        ("link", "pk"): some, ("schedulers", "name"): ["hall-a"], ("views", "view_id"): some,
    }  # fmt: skip
    for kind in (
        "agents", "cooling-zones", "ecc-events", "gpus", "hardware-models", "lemons", "links",
        "limit-reports", "meters", "nodes", "notification-channels", "power-domains", "racks",
        "sites", "storage-endpoints", "versions", "xid-events",
    ):  # fmt: skip
        found[kind, "pk"] = some
    return found


def _filled(route: str, samples: Mapping[tuple[str, str], list[str]]) -> list[str]:
    """Return the addresses of a route. Raises KeyError for a parameter that has no samples."""
    route = re.sub(r"\^|\$|\\Z|\\|\?(?!P)", "", route)
    made = [""]
    before, end = "", 0
    for found in _PARAM.finditer(route):
        text = route[end : found.start()]
        name = found[1] or found[2]
        word = text.strip("/").rpartition("/")[2] or before
        made = [each + text + value for each in made for value in samples[word, name]]
        before, end = name, found.end()
    return ["/" + each + route[end:] for each in made]


def _addresses() -> dict[str, list[str]]:
    """Return the addresses of each route."""
    samples = _samples()
    samples |= {("admin", "url"): ["x"], ("admin", "app_label"): ["accounts", "fleet"]}
    samples |= {("r", "content_type_id"): ["1"], ("content_type_id", "object_id"): ["1"]}
    made: dict[str, list[str]] = {}
    missing = []
    for route in _routes(get_resolver()):
        if route.startswith("admin/") and "object_id" in route:
            # All of Django's pages of one row are alike; the entries of the audit log name jobs.
            wanted = ["1", "2", "3", "4"] if "auditentry" in route else ["1"]
            model = route.split("/")[2]
            samples[model, "object_id"] = wanted
        if route.startswith("admin/accounts/user/<id>"):
            samples["user", "id"] = ["1"]
        try:
            made[route] = _filled(route, samples)
        except KeyError as error:
            missing.append((route, error.args[0]))
    assert missing == [], "routes with parameters that have no samples: add them to _samples()"
    return made


#: Queries beside an address by itself. Parts of names that both projects' jobs have in common.
QUERIES = {
    "/search": ["q=running-", "q=nam", "q=oslo", "q=of-"],
    "/queue/": ["state=running", "state=ended", "state=waiting", "search=queued-", "search=held-",
                "reason=FeedPowerHeadroom"],
    "/live/queue": ["state=running", "state=ended", "search=running-"],
    "/restrictions/": ["show=history", "search=running-", "search=cap", "search=job"],
    "/live/restrictions": ["show=history", "search=running-"],
    "/api/v1/restrictions": ["page_size=2", "scope_kind=job", "live=0", "waiting=1"],
    "/api/v1/incidents": ["page_size=1"],
    "/api/v1/jobs": ["page_size=1", "open=1", "waiting_for=FeedPowerHeadroom"],
    "/api/v1/throttle-events": ["page_size=1", "open=1", "open=0"],
    "/api/v1/queue": ["first=1&count=1", "first=2&count=1"],
    "/api/v1/projects": ["page_size=1"],
    "/api/v1/power-sources": ["node=n1"],
    "/throttle/": ["range=24h", "rack=oslo/A01", "by=events"],
    "/incidents/": ["state=open"],
    "/slos/training-begins/": ["show=bad", "show=good"],
    "/api/v1/slos/training-begins/judgments": ["page_size=1"],
    "/live/fleet": ["metric=power", "metric=temp"],
    "/api/v1/restrictions/effective": [
        "scope_kind=node&scope={mine}", "scope_kind=node&scope={theirs}"
    ],
    "/playbooks/cool-down/": ["kind=rack&scope=oslo/A01"],
}  # fmt: skip


# --- The walk -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made_world(module_db: None) -> World:
    forget_all()
    return make_world()


@pytest.fixture
def world(made_world: World, db: None) -> Iterator[World]:
    """The world as it was made: what a test changes of it is undone."""
    forget_all()
    yield made_world
    forget_all()


def _text(response: HttpResponseBase) -> str:
    body = b"".join(response) if response.streaming else response.content  # type: ignore[attr-defined]
    heads = "\n".join(f"{name}: {value}" for name, value in response.items())
    return f"{heads}\n{body.decode(errors='replace')}"


def _walk(reader: Reader, world: World, routes: Mapping[str, list[str]]) -> list[str]:
    """Have a reader ask for all it can; return what it met and may not see, and faults."""
    wrong: list[str] = []
    for route, addresses in routes.items():
        if not reader.asks(route):
            continue
        for address in _asked(reader, world, addresses if reader.asks_all else addresses[:1]):
            answer = reader.client.get(address)
            wrong += _judged(reader, world, address, answer)
            wrong += _shared_wrongly(reader, route, address, answer)
            wrong += _followed(reader, world, answer)
            if answer.status_code in (401, 403, 405):
                break  # so are all of the route
        if reader.asks_all and route.startswith("live/"):
            htmx = reader.client.get(address, headers={"HX-Request": "true"})
            wrong += _judged(reader, world, address, htmx)
        if reader.asks_all and route.startswith("api/"):
            wrong += _judged(reader, world, address, reader.client.options(address))
    return wrong


def _asked(reader: Reader, world: World, addresses: list[str]) -> Iterator[str]:
    """Yield the addresses of a route, by themselves and with queries.

    Without those that name a job or project that the reader may not see.
    """
    pairs = zip((world.mine, world.theirs), (0, 1), strict=True)
    seen = [each for each, place in pairs if reader.may_see(place, "name")]
    for address in addresses:
        if JOB in address:
            sorts = SORTS if reader.asks_all else ("running", "held")
            yield from (
                address.replace(JOB, each.jobs[sort].name) for each in seen for sort in sorts
            )
        elif _NAMED.search(address):
            yield from (_named(address, each) for each in seen)
        else:
            yield address
            for query in _queries(address) if reader.asks_all else ():
                yield f"{address}?{query.format(mine=world.mine.node, theirs=world.theirs.node)}"


#: Stand for what is of one project, where it is no job.
_NAMED = re.compile(r"\{(project|member)\}")


def _named(address: str, each: Marked) -> str:
    names = {"project": each.project.name, "member": each.member.username}
    return _NAMED.sub(lambda found: names[found[1]], address)


def _queries(address: str) -> list[str]:
    if address != "/api/v1/series":
        return QUERIES.get(address, [])
    return [
        f"kind=job&id={number}&range=1h&format={form}{fields}"
        for number in _ids(ReportedJob)
        for form in ("json", "csv", "msgpack")
        for fields in ("", "&fields=loss,power_w")
    ]


def _judged(reader: Reader, world: World, address: str, answer: HttpResponseBase) -> list[str]:
    text, wrong = _text(answer), []
    if answer.status_code >= 500 and answer.request["REQUEST_METHOD"] != "OPTIONS":  # type: ignore[attr-defined]
        wrong.append(f"{reader.name}: {address} answers {answer.status_code}")
    for place, each in enumerate((world.mine, world.theirs)):
        for mark, value in each.marks.items():
            if value in text:
                reader.met.add((("mine", "theirs")[place], mark))
                if not reader.may_see(place, mark):
                    whose = "mine" if place == 0 else "theirs"
                    wrong.append(f"{reader.name}: {address} tells the {mark} of {whose}")
    if answer.status_code == 200 and "sessionid" in reader.client.cookies:
        shared = answer.get("Cache-Control", ""), answer.get("Vary", "")
        if not any(word in shared[0] for word in ("no-store", "private")) and (
            "Cookie" not in shared[1]
        ):
            wrong.append(f"{reader.name}: {address} may be cached for others: {shared}")
    return wrong


#: What the front door gives to many who ask. Whatever is to be another needs no place here.
SHARED_PATHS = ["/live/fleet", "/live/fleet/panel"]


def _shared_wrongly(
    reader: Reader, route: str, address: str, answer: HttpResponseBase
) -> list[str]:
    """Say where one who asks for all gets an answer that many may get, or that is not shared."""
    is_shared = address.partition("?")[0] in SHARED_PATHS
    if not reader.asks_all or route.startswith("admin/") or (SHARED in answer) == is_shared:
        return []
    return [f"{address} is {'not ' if is_shared else ''}shared"]


def _followed(reader: Reader, world: World, answer: HttpResponseBase) -> list[str]:
    """Follow the pages of a list, by cursor."""
    wrong, left = [], 12
    while answer.status_code == 200 and answer.get("Content-Type") == "application/json" and left:
        following = answer.json() if not answer.streaming else {}  # type: ignore[attr-defined]
        url = following.get("next") if isinstance(following, dict) else None
        if not url:
            break
        answer, left = reader.client.get(url), left - 1
        wrong += _judged(reader, world, url, answer)
    return wrong


def test_no_answer_names_what_its_reader_may_not_see(world: World) -> None:
    """Nor is any that is not the same for all who may see it shared at the front door."""
    _see_what_they_may(_one_of_each(_readers(world)), world)


@pytest.mark.slow(
    beside="tests/integration/config/test_what_readers_see.py"
    "::test_no_answer_names_what_its_reader_may_not_see"
)
def test_no_answer_names_what_a_reader_of_any_role_may_not_see(world: World) -> None:
    _see_what_they_may(_readers(world), world)


def _see_what_they_may(readers: list[Reader], world: World) -> None:
    """Have readers walk all; what they may see they meet, and nothing else."""
    addresses = _addresses()
    wrong = [each for reader in readers for each in _walk(reader, world, addresses)]
    for reader in readers:
        wrong += _worked(reader, world)
    assert not wrong, "\n".join(sorted(set(wrong)))
    # What may be seen was: else the walk would have found nothing because it came to nothing.
    for reader in readers:
        for place, whose in enumerate(("mine", "theirs")):
            for mark in (*NAMED, *SECRET, *SAID):
                is_met = (whose, mark) in reader.met
                assert is_met == reader.may_see(place, mark), (reader.name, whose, mark)


def _worked(reader: Reader, world: World) -> list[str]:
    """Ask for work, as the runners of both nodes do."""
    wrong = []
    for node in (world.mine.node, world.theirs.node):
        body = {"store": f"store-of-{node}", "nodes": [node]}
        answer = reader.client.post("/api/v1/work", body, content_type="application/json")
        wrong += _judged(reader, world, f"work of {node}", answer)
    return wrong


# --- What is not to be seen is as what is not there -----------------------------------------------


def _stripped(answer: HttpResponseBase, *given: str) -> tuple[int, str]:
    """Return an answer without what was asked for, tokens, digests and numbers."""
    text = _text(answer)
    for each in sorted(given, key=len, reverse=True):
        for form in {each, quote(each, safe=""), quote(each)}:
            text = text.replace(form, "~")
    # Of one request alone: its id, and the token of its forms.
    text = re.sub(r'name="csrfmiddlewaretoken" value="\w+"|\b[0-9a-f]{16}\b', "", text)
    return answer.status_code, re.sub(r"[0-9]+", "#", text)


def _alike(ask: Callable[[str], HttpResponseBase], hidden: str, gone: str, *given: str) -> bool:
    """Say whether both are answered alike. Ages may grow between the two, so it is asked again."""
    return any(_stripped(ask(hidden), *given) == _stripped(ask(gone), *given) for _ in range(3))


def _absent(value: str, each: Marked) -> str:
    """Return a value of the same form that there is nothing of."""
    for mark in each.marks.values():
        value = value.replace(mark, secrets.token_hex(len(mark))[: len(mark)])
    return value


ASKS: dict[str, Callable[[Marked], list[str]]] = {
    "job": lambda each: [
        form
        for sort in ("queued", "running")
        for form in (each.jobs[sort].name, each.key(sort), f"{each.key(sort)}/1")
    ],
    "project": lambda each: [each.project.name],
    "owner": lambda each: [each.member.username, f"user:{each.member.username}"],
    "image": lambda each: [each.image],
}
QUESTIONS = [
    ("/api/v1/throttle-events?job=", "job"), ("/api/v1/restrictions?scope=", "job"),
    ("/api/v1/restrictions?scope_kind=job&scope=", "job"),
    ("/api/v1/restrictions?owner=", "owner"), ("/restrictions/?search=", "job"),
    ("/api/v1/restrictions/effective?scope_kind=job&scope=", "job"),
    ("/restrictions/?show=history&search=", "job"), ("/live/restrictions?search=", "job"),
    ("/queue/?search=", "job"), ("/queue/?state=running&search=", "job"),
    ("/queue/?state=ended&search=", "job"), ("/queue/?project=", "project"),
    ("/live/queue?project=", "project"), ("/search?q=", "job"), ("/search?q=", "project"),
    ("/api/v1/jobs?project=", "project"), ("/api/v1/jobs?submitted_by=", "owner"),
    ("/api/v1/incidents?scope=", "job"), ("/incidents/?scope=", "job"),
    ("/api/v1/playbook-runs?scope=", "job"), ("/api/v1/playbook-runs?scope_kind=job&scope=", "job"),
    ("/api/v1/draw-profiles?project=", "project"), ("/api/v1/draw-profiles?image=", "image"),
    ("/playbooks/cool-down/?kind=job&scope=", "job"), ("/throttle/?node=", "job"),
]  # fmt: skip


def test_what_one_may_not_see_is_answered_as_what_is_not_there(world: World) -> None:
    client, each = _browser(world.mine.member), world.theirs
    for question, kind in QUESTIONS:
        for value in ASKS[kind](each):
            other = _absent(value, each)
            urls = question + quote(value), question + quote(other)
            assert _alike(client.get, *urls, value, other), (question, value)


def test_pages_and_calls_about_a_foreign_job_are_as_about_none(world: World) -> None:
    client, each = _browser(world.mine.member), world.theirs
    asked = 0
    for address in (each for addresses in _addresses().values() for each in addresses):
        if JOB not in address and not _NAMED.search(address):
            continue
        for sort in SORTS if JOB in address else SORTS[:1]:
            url = _named(address.replace(JOB, each.jobs[sort].name), each)
            other = _absent(url, each)
            names = [
                part for each_url in (url, other) for part in each_url.split("/") if "-" in part
            ]
            for ask in (client.get, client.post, client.options):
                assert _alike(ask, url, other, *names), url
                asked += 1
    assert asked > 100


def test_rows_about_a_foreign_job_are_as_none(world: World) -> None:
    """By ids, which can be counted up."""
    client, name = _browser(world.mine.member), world.theirs.jobs["running"].name
    told = Directive.objects.filter(attempt__phase__job__name=name).latest("pk").pk
    rows: dict[type[Model], list[str]] = {
        Restriction: ["/restrictions/{}/", "/live/restrictions/{}", "/api/v1/restrictions/{}",
                      "/api/v1/restrictions/{}/ledger"],
        Incident: ["/incidents/{}/", "/live/incidents/{}", "/api/v1/incidents/{}",
                   "/api/v1/incidents/{}/members", "/api/v1/incidents/{}/timeline"],
        PlaybookRun: ["/runs/{}/", "/live/runs/{}", "/api/v1/playbook-runs/{}"],
    }  # fmt: skip
    for model, address in ((model, each) for model, all_ in rows.items() for each in all_):
        row = model._default_manager.filter(scope_kind="job", scope_name=name).latest("pk")
        urls = address.format(row.pk), address.format(row.pk + 10_000)
        assert client.get(urls[0]).status_code == 404, address
        assert _alike(client.get, *urls), address
    paths = [f"/api/v1/directives/{pk}/withdraw" for pk in (told, told + 10_000)]
    answers = [
        client.post(path, {"reason": "x"}, content_type="application/json") for path in paths
    ]
    assert _stripped(answers[0]) == _stripped(answers[1])


def _series(answer: HttpResponseBase) -> Any:
    """Return an answer without the id that was asked for."""
    if answer["Content-Type"] != "application/msgpack":
        return _stripped(answer)
    return {**msgspec.msgpack.decode(answer.content), "id": 0}  # type: ignore[attr-defined]


@pytest.mark.parametrize("form", ["json", "csv", "msgpack"])
def test_the_series_of_a_foreign_job_is_that_of_one_that_never_reported(
    world: World, form: str
) -> None:
    client = _browser(world.mine.member)
    ids = {job.name: job.pk for job in ReportedJob.objects.all()}
    foreign = ids[world.theirs.jobs["running"].name]
    for asked in ("", "&fields=loss", "&fields=power_w,gpus_reporting,loss"):
        for way in ("series", "series.csv"):
            end = "" if way == "series.csv" else f"&format={form}"
            url = f"/api/v1/{way}?kind=job&from=2026-11-01T00:00:00&to=2026-11-01T01:00:00"
            told = [client.get(f"{url}&id={pk}{asked}{end}") for pk in (foreign, foreign + 50)]
            assert told[0].status_code == 200
            assert _series(told[0]) == _series(told[1])
    read = "/api/v1/series?kind=job&range=15m&fields=loss&id="
    assert client.get(f"{read}{foreign}").json()["columns"]["loss"] == []
    own = client.get(f"{read}{ids[world.mine.jobs['running'].name]}").json()
    assert [each for each in own["columns"]["loss"] if each] == [2.5, 2.5, 2.5]


def test_a_job_that_no_project_knows_is_shown_to_who_watches_alone(world: World) -> None:
    stray = ReportedJob.objects.create(name="from-another-scheduler")
    ThrottleEvent.objects.update(job=stray)
    for reader in _readers(world):
        if reader.kinds is None or AGENT in reader.kinds:
            continue
        watches = not {OPERATES, WATCHES}.isdisjoint(reader.kinds)
        text = _text(reader.client.get("/api/v1/throttle-events"))
        assert (stray.name in text) == watches, reader.name
        assert Job.objects.count() == 2 * len(SORTS)


# --- What others got ------------------------------------------------------------------------------

_POLL = re.compile(r'hx-get="([^"]+)"')
_VERSION = re.compile(r"([?&])v=[^&]*")


def _people(world: World) -> list[Reader]:
    return [each for each in _readers(world) if "sessionid" in each.client.cookies]


def _polls(reader: Reader, world: World) -> dict[str, str]:
    """Return what the pages of a reader ask again and again, each with the ETag it got."""
    found = dict.fromkeys([*SHARED_PATHS, "/live/fleet?metric=power"], "")
    for route, addresses in _addresses().items():
        if not route.startswith(("api/", "admin/", "live/")):
            for address in _asked(reader, world, addresses[:1]):
                page = _text(reader.client.get(address))
                found |= {unescape(url): "" for url in _POLL.findall(page)}
    return {url: reader.client.get(url).get("ETag", "") for url in found}


def test_what_one_reader_got_shows_another_nothing_more(world: World) -> None:
    """A version or an ETag of somebody who sees more, with which a poll asks for what is new."""
    people = _one_of_each(_people(world))
    asked = {"other": 0, "same": 0}
    for first in (each for each in people if each.name in (Role.VIEWER, "member of theirs")):
        polls = _polls(first, world)
        got: dict[str, tuple[int, str]] = {}
        assert len(polls) > 20, sorted(polls)
        assert sum(map(bool, polls.values())) > 1
        for url, etag in polls.items():
            head = {"If-None-Match": etag, "HX-Request": "true"}
            for second in people:
                if second.asks(url.partition("?")[0].strip("/")):
                    answer = second.client.get(url, headers=head)
                    assert not _judged(second, world, url, answer)
                    asked["other"] += 1
                    if answer.status_code in (204, 304):
                        assert not answer.content
                        # "You have it" is said to whoever would get the very same.
                        whole = _VERSION.sub(r"\1", url)
                        answer = second.client.get(whole)
                        assert not _judged(second, world, whole, answer)
                        if whole not in got:
                            got[whole] = _stripped(first.client.get(whole))
                        assert _stripped(answer) == got[whole] or _same(
                            first.client, second.client, whole
                        ), (second.name, url)
                        asked["same"] += 1
            nobody = Client().get(url, headers=head)
            assert nobody.status_code in (302, 401, 403), url
    assert all(asked.values())


def _same(one: Client, other: Client, url: str) -> bool:
    """Say whether both get the same. Ages may grow between the two, so it is asked again."""
    return any(_stripped(one.get(url)) == _stripped(other.get(url)) for _ in range(3))


def test_what_is_shared_is_the_same_for_all_who_may_see_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "_LEAST_AGE_S", 3600.0)
    people = _people(world)
    for url in (*SHARED_PATHS, "/live/fleet?metric=power", "/live/fleet/panel?site=oslo"):
        bodies = set()
        for reader in people:
            # Made anew for each, or the first one's would be everybody's.
            state.current().once._made.clear()
            answer = reader.client.get(url)
            assert answer.status_code == 200
            assert SHARED in answer
            bodies.add(answer.content)
            assert not [
                mark
                for each in (world.mine, world.theirs)
                for mark, value in each.marks.items()
                if value in _text(answer)
            ]
        assert len(bodies) == 1, url
