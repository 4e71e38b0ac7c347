"""The demo under surges: load of no known owner goes up by surprise, and all tell the same of it.

``SURGE_S=1200`` in the environment holds each of the three surges for twenty minutes.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page, sync_playwright

from bench.stack import Stack
from headroom.client import Client
from lab.demo import Demo, Settings
from lab.surges import Surge, add, nodes_in
from tests.browser.chromium import FLAGS, executable
from tests.browser.signing_in import sign_in
from tests.browser.stopwatch import Stopwatch, kilowatts_of
from tests.builders.demo import heard_demo, until

pytestmark = pytest.mark.slow
BACK_WITHIN_S = 20.0
#: Each surge goes on for so long, and is held for the rest of it.
SURGE_S = float(os.environ.get("SURGE_S", "45"))
#: Before it comes a budget is made tight, and the load below it has settled, s.
SETTLES_S = 15.0
#: What pages say of it is read so often while it is held.
READS = 3
#: The kinds of scopes of what surges, and the columns of headroom that say how full they are.
KINDS = {
    "zone": ("zone", "cooling_drawn_w", "cooling_capacity_w"),
    "rack": ("rack", "power_drawn_w", "power_budget_w"),
    "feed": ("power_domain", "failover_load_w", "power_budget_w"),
}
#: What is told of the twin is so old at most: readings come each 5 s, the server looks at them each
#: 2 s, and pages are read within some seconds.
BEHIND_S = 20.0
#: Pages go by restrictions as they were so long ago at most, s.
KNOWN_WITHIN_S = 8.0


# --- The truth -----------------------------------------------------------------------------------


@dataclass
class Plant:
    """A budget in the twin: what is drawn below it, each quarter of a second."""

    demo: Demo
    place: str
    name: str
    budget_w: float = np.nan
    times: list[float] = field(default_factory=list)
    watts: list[float] = field(default_factory=list)

    @property
    def scope(self) -> str:
        return f"{KINDS[self.place][0]} {self.name}"

    @property
    def words(self) -> str:
        return self.scope.replace("_", " ")

    def look(self) -> float:
        """Note what is drawn now; return it as a share of the budget."""
        names, load_w, _ = loads(self.demo)[self.place]
        self.watts.append(float(load_w[names.index(self.name)]))
        self.times.append(time.time())
        return self.watts[-1] / self.budget_w

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Look at it each quarter of a second, whatever else is done meanwhile."""
        over = threading.Event()

        def look() -> None:
            while not over.wait(0.25):
                self.look()

        thread = threading.Thread(target=look, name="watch")
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(5.0)

    def lately_w(self, until_s: float) -> tuple[float, float]:
        """Return the least and the most that was drawn in what the server may know of, W."""
        watts = [
            w for at, w in zip(self.times, self.watts, strict=True)
            if until_s - BEHIND_S <= at <= until_s
        ]  # fmt: skip
        return min(watts), max(watts)

    def since(self, began: float) -> tuple[float, float, float]:
        """Return the most that was drawn since then, as a share of the budget; for how long it was
        over; and when for the last time, s after.
        """
        times = np.array(self.times)
        share = np.array(self.watts[: len(times)]) / self.budget_w
        over = (times >= began) & (share > 1.0)
        lasted_s = np.diff(times, append=times[-1])
        last_s = float((times[over] - began).max(initial=0.0))
        return float(share[times >= began].max()), float(lasted_s[over].sum()), last_s

    @property
    def capped(self) -> int:
        """How many GPUs of the fleet are under a limit below their rating, in the twin."""
        twin = self.demo.twin
        return int((twin.power_limit_w < twin.parts.power_limit_w - 0.5).sum())

    def about(self, incident: Mapping[str, Any]) -> bool:
        """Say whether an incident is about it, or about a rack below it."""
        places = {self.scope, *(f"rack {each}" for each in self.racks)}
        return f"{incident['scope_kind']} {incident['scope_name']}" in places

    @property
    def racks(self) -> list[str]:
        """The racks that it is about."""
        fleet = self.demo.fleet
        here = np.unique(fleet.rack_of_node[nodes_in(self.demo.twin, self.place, self.name)])
        return [f"{fleet.racks[row].site}/{fleet.racks[row].name}" for row in here.tolist()]


def loads(demo: Demo) -> dict[str, tuple[list[str], Any, Any]]:
    """Return names, loads and budgets of racks, zones and feeds, in W, as the twin has them.

    Of a feed it is what it would carry if the other one failed.
    """
    twin, fleet = demo.twin, demo.fleet
    domains = twin.domains
    zones = list(dict.fromkeys(f"{rack.site}/{rack.zone}" for rack in fleet.racks))
    zone_w = np.bincount(fleet.row_of_rack, twin.rack_w, len(zones))
    names = [f"{fleet.sites[s]}/{n}" for s, n in zip(domains.site, domains.names, strict=True)]
    racks = [f"{rack.site}/{rack.name}" for rack in fleet.racks]
    feeds = domains.of_kind("feed")
    return {
        "rack": (racks, twin.rack_w.copy(), twin.parts.rack_budget_w),
        "zone": (zones, zone_w, twin.parts.zone_capacity_w),
        "feed": (
            [names[i] for i in feeds],
            twin.domain_w[feeds] + twin.domain_w[domains.partner[feeds]],
            domains.budget_w[feeds],
        ),
    }


def likeliest(demo: Demo, place: str) -> Plant:
    """Return the place where load that goes up would raise most what is drawn."""
    twin = demo.twin
    rise_w = np.where(twin.busy, twin.parts.power_limit_w - twin.power_w, 0.0)
    node_w = rise_w.reshape(len(demo.fleet.nodes), -1).sum(axis=1)
    names, load_w, _ = loads(demo)[place]
    shares = [
        node_w[nodes_in(twin, place, name)].sum() / watts
        for name, watts in zip(names, load_w.tolist(), strict=True)
    ]
    return Plant(demo, place, names[int(np.argmax(shares))])


def narrow(operator: Client, plant: Plant) -> int:
    """Leave a place little more than it draws: the demo has room that a surge would not fill."""
    names, load_w, budget_w = loads(plant.demo)[plant.place]
    row = names.index(plant.name)
    plant.budget_w = round(min(float(budget_w[row]), 1.03 * float(load_w[row])))
    issued = operator.post(
        "/api/v1/restrictions",
        {
            "kind": "power_budget_w",
            "scope": {"kind": KINDS[plant.place][0], "name": plant.name},
            "value": plant.budget_w,
            "reason": "test",
            "for_s": SURGE_S + 600.0,
        },
    )
    return int(issued["id"])


# --- What is told --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Told:
    """What API and pages say of a place within some seconds, the API before and after the pages."""

    plant: Plant
    api: tuple[Mapping[str, Any], Mapping[str, Any]]
    pages: Mapping[str, str]
    began: float
    ended: float

    def spans(self, number: Callable[[Mapping[str, Any]], float]) -> tuple[float, float]:
        """Return the least and the most of what the API said, before and after."""
        both = sorted(number(each) for each in self.api)
        return both[0], both[1]

    @cached_property
    def is_over(self) -> set[bool]:
        """Whether the budget is over by the API: both, while that changes."""
        return {over_w(each, self.plant) > 0.0 for each in self.api}

    def check(self) -> None:
        """Hold all that is told against each other, and against the twin."""
        self._check_load()
        self._check_lines()
        self._check_fleet()
        self._check_rack()
        for number in self.incidents:
            self._check_incident(number)
        for number in self.runs:
            self._check_run(number)

    @property
    def answering(self) -> list[Mapping[str, Any]]:
        """The runs for the budget itself that are under way."""
        about = (self.plant.scope, None)
        return [
            each
            for each in self.api[1]["runs"].values()
            if (f"{each['scope']['kind']} {each['scope']['name']}", each["ended_at"]) == about
            and each["playbook"] in ("power-cap", "cooling-cap")
        ]

    def last_run_of(self, incident: int) -> Mapping[str, Any]:
        runs = self.api[1]["runs"].values()
        return max(
            (each for each in runs if each["incident_id"] == incident), key=lambda each: each["id"]
        )

    @property
    def incidents(self) -> list[int]:
        """The numbers of incidents whose pages were read."""
        return [int(path.split("/")[2]) for path in self.pages if path.startswith("/incidents/")]

    @property
    def runs(self) -> list[int]:
        return [int(path.split("/")[2]) for path in self.pages if path.startswith("/runs/")]

    def _check_load(self) -> None:
        """The server says what the twin draws, and what it may draw."""
        least_w, most_w = self.plant.lately_w(self.ended)
        _, load, budget = KINDS[self.plant.place]
        for each in self.api:
            assert each["row"][budget] == pytest.approx(self.plant.budget_w, rel=1e-6)
            assert 0.96 * least_w <= each["row"][load] <= 1.04 * most_w, (least_w, most_w)

    def _check_lines(self) -> None:
        """Whatever page speaks of the budget says that it is over only while it is, and held only
        while it is not.
        """
        words = re.escape(self.plant.words)
        for path, text in self.pages.items():
            over = re.search(rf"{words} (?:is|would be) over its budget by ([\d.]+) kW", text)
            if over:
                assert True in self.is_over, (path, over[0])
                least_w, most_w = self.spans(lambda each: over_w(each, self.plant))
                slack_w = 0.02 * self.plant.budget_w
                assert least_w - slack_w <= 1000 * float(over[1]) <= most_w + slack_w, path
            if re.search(rf"{words}: held by the controller", text):
                assert False in self.is_over, path

    def _check_fleet(self) -> None:
        text = self.pages["/"]
        least, most = self.spans(lambda each: each["controller"]["capped"])
        told = re.search(r"held by the controller: ([\d,]+) GPUs? capped", text)
        if told is None:
            assert least == 0
        else:
            assert 0.8 * least <= int(told[1].replace(",", "")) <= 1.25 * most
        if self.is_over == {True}:
            assert re.search(rf"{re.escape(self.plant.words)} .*over its budget", text), text[:600]
        counts = self.spans(lambda each: each["unresolved"])
        told = re.search(r"incidents \((\d+)\)", text)
        assert told is not None
        assert counts[0] <= int(told[1]) <= counts[1]

    def _check_rack(self) -> None:
        """The page of a rack goes by the same budget and load, and names what is above it."""
        path = next(each for each in self.pages if each.startswith("/racks/"))
        text = self.pages[path]
        if self.is_over == {True}:
            assert f"{self.plant.words} " in text
            assert "over its budget" in text
        if self.is_over == {False} and self.gpus_held[0] > 0:
            assert f"{self.plant.words}: held by the controller" in text, text[:900]
        if self.plant.place == "rack":
            head = re.search(r"([\d.]+) of ([\d.]+) kW · ([\d.]+) kW (over|left)", text)
            assert head is not None, text[:300]
            assert float(head[2]) == pytest.approx(self.plant.budget_w / 1000, abs=0.06)
            least_w, most_w = self.plant.lately_w(self.ended)
            assert 0.96 * least_w <= 1000 * float(head[1]) <= 1.04 * most_w
            assert float(head[2]) - float(head[1]) == pytest.approx(
                float(head[3]) * (-1 if head[4] == "over" else 1), abs=0.11
            )

    @property
    def gpus_held(self) -> tuple[float, float]:
        """How many GPUs below it are capped, by the API."""
        return self.spans(lambda each: sum(h["gpus"] for h in held(each, self.plant)))

    def _check_incident(self, number: int) -> None:
        """An incident is resolved once nothing of it fires, runs or holds; its page says its state,
        and of each of its runs what the run's own page says.
        """
        text = self.pages[f"/incidents/{number}/"]
        states = {each["incidents"][number]["state"] for each in self.api}
        if states == {"resolved"}:
            assert " · resolved " in text
        if "resolved" not in states:
            assert "opened" in text.partition("now")[0], text[:300]
        for each in self.api:
            row = each["incidents"][number]
            runs = [run for run in each["runs"].values() if run["incident_id"] == number]
            live = [run for run in runs if run["ended_at"] is None]
            if row["state"] == "resolved":
                assert not live
                assert not held_by(each, runs)
            for answer in row["answers"]:
                # What fires is acted on, waits for somebody, or was given up aloud.
                assert answer["token"] in {
                    "starting", "active", "waits_for_a_person", "back_off", "given_up",
                    "no_playbook", "cleared", "explained",
                }, answer  # fmt: skip
                assert (answer["token"] != "active") or live

    def _check_run(self, number: int) -> None:
        text = self.pages[f"/runs/{number}/"]
        states = {each["runs"][number]["state"] for each in self.api}
        told = re.search(rf"Run {number} of [\w-]+ on [^:]+: (\w+)", text)
        assert told is not None, text[:200]
        assert told[1] in states
        incident = next(iter(self.api))["runs"][number]["incident_id"]
        if incident in self.incidents and len(states) == 1:
            assert re.search(rf"run {number}\s+{told[1]}", self.pages[f"/incidents/{incident}/"])


def held_by(told: Mapping[str, Any], runs: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return what is in force of runs by the API."""
    owners = tuple(f"playbook:{each['id']}/" for each in runs)
    return [each["kind"] for each in told["restrictions"] if each["owner"].startswith(owners)]


def over_w(told: Mapping[str, Any], plant: Plant) -> float:
    """Return by how much the budget is over by what the API tells of the controller, W."""
    return max((float(each["over_w"]) for each in held(told, plant)), default=0.0)


def held(told: Mapping[str, Any], plant: Plant) -> list[Mapping[str, Any]]:
    alone = plant.place == "feed"
    return [
        each
        for each in told["controller"]["budgets"]
        if each["scope"] == plant.scope and each["is_failover"] == alone
    ]


@dataclass
class Reader:
    """A person who is signed in, and reads pages in a browser; and a client of the API."""

    stack: Stack
    operator: Client
    page: Page

    def read(self, plant: Plant) -> Told:
        """Read all that is told of a place, and hold it to one story."""
        plant.look()
        began, before = time.time(), self.api(plant)
        found = [number for number, each in before["incidents"].items() if plant.about(each)]
        runs = [number for number, each in before["runs"].items() if each["incident_id"] in found]
        paths = ["/", f"/racks/{self._rack(plant)}/"]
        paths += [f"/incidents/{number}/" for number in found]
        paths += [f"/runs/{number}/" for number in runs]
        pages = {path: self._text(path) for path in paths}
        plant.look()
        return Told(plant, (before, self.api(plant)), pages, began, time.time())

    def api(self, plant: Plant) -> dict[str, Any]:
        get = self.operator.get
        kind = KINDS[plant.place][0]
        rows = get(f"/api/v1/headroom?kind={kind}")["rows"]
        incidents = get("/api/v1/incidents")["results"]
        return {
            "controller": get("/api/v1/controller"),
            "row": next(each for each in rows if each["name"] == plant.name),
            "unresolved": sum(each["state"] in ("open", "acknowledged") for each in incidents),
            "incidents": {each["id"]: get(f"/api/v1/incidents/{each['id']}") for each in incidents},
            "runs": {each["id"]: each for each in get("/api/v1/playbook-runs")["results"]},
            "restrictions": get("/api/v1/restrictions?in_force=1")["results"],
        }

    def _rack(self, plant: Plant) -> int:
        """Return the number of the page of a rack that the place is about."""
        found = self.operator.get("/api/v1/racks?page_size=1000")["results"]
        return next(int(each["id"]) for each in found if each["key"] == plant.racks[0])

    def _text(self, path: str) -> str:
        self.page.goto(f"{self.stack.url}{path}")
        self.page.wait_for_selector("main")
        return re.sub(r"\s+", " ", self.page.inner_text("main"))


@contextmanager
def reading(stack: Stack, operator: Client) -> Iterator[Reader]:
    """Sign the first admin in, in a real browser."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=FLAGS)
        page = browser.new_page()
        page.goto(f"{stack.url}/login/")
        sign_in(page, stack.url, stack.state_dir / "admin-password")
        yield Reader(stack, operator, page)
        browser.close()


# --- The stories ---------------------------------------------------------------------------------


@dataclass
class Scene:
    """A demo all of whose agents act on caps, what people see of it, and the way to surprise it."""

    demo: Demo
    operator: Client
    reader: Reader
    surges: Path

    def surge(self, plant: Plant, seconds: float) -> float:
        """Have the load of no known owner go up; return since when, Unix s."""
        began = time.time()
        add(self.surges, Surge(plant.place, plant.name, 1.2, began + seconds), began)
        return began

    def read(self, plant: Plant, *, after_s: float = 0.0) -> Told:
        """Read all that is told of a place after a while; it has to be one story."""
        time.sleep(after_s)
        told = self.reader.read(plant)
        told.check()
        return told

    def widen(self, plant: Plant, restriction: int) -> None:
        """Give a place its own budget back, and wait until pages know."""
        self.operator.post(f"/api/v1/restrictions/{restriction}/lift", {"reason": "done"})
        names, _, budget_w = loads(self.demo)[plant.place]
        plant.budget_w = float(budget_w[names.index(plant.name)])
        time.sleep(KNOWN_WITHIN_S)


@pytest.fixture(scope="module")
def scene(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    token = stack.credential("operator_token")
    operator, surges = Client(stack.url, token), tmp_path_factory.mktemp("demo") / "surges.json"
    settings = Settings(gpus=256)
    with (
        heard_demo(stack, token, settings, surges=surges) as demo,
        reading(stack, operator) as reader,
    ):
        until(lambda: acting(operator) >= demo.fleet.gpu_count, 60.0)
        yield Scene(demo, operator, reader, surges)


def acting(operator: Client) -> int:
    return int(operator.get("/api/v1/controller")["acting"])


@pytest.mark.parametrize("place", KINDS)
def test_a_surge_is_back_under_its_budget_and_held_and_all_tell_the_same_of_it(
    scene: Scene, place: str
) -> None:
    plant = likeliest(scene.demo, place)
    with plant.watched():
        narrowed = narrow(scene.operator, plant)
        time.sleep(SETTLES_S)
        scene.read(plant)
        began = scene.surge(plant, SURGE_S)
        while time.time() - began < BACK_WITHIN_S:
            scene.read(plant, after_s=1.0)
        for _ in range(READS):
            time.sleep(max(began + SURGE_S - time.time(), 0.0) / READS)
            told = scene.read(plant)
            assert told.gpus_held[0] > 0
            assert plant.capped >= told.gpus_held[0]
        most, over_s, last_s = plant.since(began)
        print(
            f"\n{plant.words}: held for {SURGE_S:.0f} s; at most {most:.3f} of its budget, over it"
            f" for {over_s:.1f} s in all, for the last time {last_s:.1f} s after it began; at the"
            f" end {plant.look():.3f}"
        )
        assert last_s < BACK_WITHIN_S
        scene.widen(plant, narrowed)
        scene.read(plant)


@pytest.mark.parametrize("place", ["rack", "zone"])
def test_where_no_load_may_be_touched_it_is_told_whose_it_is_until_a_run_has_mended_it(
    scene: Scene, stack: Stack, place: str
) -> None:
    stack.credential("leaving_unmanaged_alone")
    until(lambda: not scene.operator.get("/api/v1/controller")["unmanaged_capped"], 30.0)
    time.sleep(SETTLES_S)
    plant = likeliest(scene.demo, place)
    with plant.watched():
        narrowed = narrow(scene.operator, plant)
        scene.read(plant)
        began = scene.surge(plant, SURGE_S)
        until(lambda: over_w(scene.reader.api(plant), plant) > 0.0, 30.0)
        told = scene.read(plant)
        (budget,) = held(told.api[0], plant)
        assert budget["left_alone"] > 0
        assert "the admission policy leaves load of no known owner alone" in told.pages["/"]
        # The run of a playbook caps all that is there, whoever placed it.
        until(lambda: scene.read(plant, after_s=1.0).answering, 90.0)
        until(lambda: plant.watts[-1] < plant.budget_w, 30.0)
        time.sleep(BEHIND_S)
        told = scene.read(plant)
        assert told.is_over == {False}
        (run,) = told.answering
        assert run["state"] in ("running", "waiting", "verifying")
        assert told.api[1]["incidents"][run["incident_id"]]["state"] == "open"
        assert "power_cap_w" in held_by(told.api[1], [run])
        time.sleep(max(began + SURGE_S - time.time(), 0.0))
        scene.widen(plant, narrowed)
        until(lambda: is_mended(scene.read(plant, after_s=3.0), run["incident_id"]), 900.0)
        told = scene.read(plant)
        last = told.last_run_of(run["incident_id"])
        assert last["state"] == "succeeded"
        assert (
            "Run {} of {} on {}: succeeded".format(last["id"], last["playbook"], plant.words)
            in (told.pages[f"/runs/{last['id']}/"])
        )


def test_a_responder_goes_by_links_from_a_surge_to_its_being_contained(
    scene: Scene, stack: Stack
) -> None:
    stack.credential("leaving_unmanaged_alone")
    until(lambda: not scene.operator.get("/api/v1/controller")["unmanaged_capped"], 30.0)
    time.sleep(SETTLES_S)
    plant, page = likeliest(scene.demo, "zone"), scene.reader.page
    with plant.watched():
        narrowed = narrow(scene.operator, plant)
        time.sleep(KNOWN_WITHIN_S)
        scene.surge(plant, SURGE_S)
        until(lambda: incident_of(scene.reader.api(plant), plant), 90.0)
        number = incident_of(scene.reader.api(plant), plant)
        watch = Stopwatch("from a surge on the twin to contained")
        page.goto(f"{stack.url}/")
        watch.click(page.locator("#asks-incidents"))
        watch.click(page.get_by_role("link", name=f"INC-{number}", exact=True).first)
        watch.click(page.get_by_role("link", name=plant.words, exact=True).first)
        page.wait_for_url("**/places/zone/**")
        check_place(page.inner_text("h1"), plant)
        assert f"INC-{number}" in page.inner_text("#hub")
        # What a run of a playbook caps shows on the twin, and then on the page.
        until(lambda: plant.watts[-1] < plant.budget_w and plant.capped, 120.0)
        time.sleep(BEHIND_S)
        page.reload()
        check_place(page.inner_text("h1"), plant)
        assert "left" in page.inner_text("h1")
        watch.click(page.locator("#hub a[href^='/runs/']").first)
        page.wait_for_url("**/runs/**")
        assert "power_cap_w" in page.inner_text("main")
        watch.stop(most=4)
        scene.widen(plant, narrowed)


def incident_of(told: Mapping[str, Any], plant: Plant) -> int:
    """Return the number of an open incident about a budget itself that a run answers; 0: none."""
    answered = {run["incident_id"] for run in told["runs"].values() if run["ended_at"] is None}
    return next(
        (
            number
            for number, each in told["incidents"].items()
            if f"{each['scope_kind']} {each['scope_name']}" == plant.scope and number in answered
        ),
        0,
    )


def check_place(head: str, plant: Plant) -> None:
    """Hold the first line of the page of a place against what the twin drew lately."""
    least_w, most_w = plant.lately_w(time.time())
    assert 0.96 * least_w <= 1e3 * kilowatts_of(head, "·") <= 1.04 * most_w, (head, least_w, most_w)
    assert kilowatts_of(head, " of") == pytest.approx(plant.budget_w / 1e3, rel=0.01)


def is_mended(told: Told, incident: int) -> bool:
    return bool(told.api[1]["incidents"][incident]["state"] == "resolved")
