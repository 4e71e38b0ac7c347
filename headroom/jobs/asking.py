"""The command line's requests to the server about jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from headroom.client import Client, Unavailable
from headroom.jobs.reading import JSON, YAML

__all__ = ["Jobs"]

Answer = dict[str, Any]

_OVER = ("succeeded", "failed", "cancelled")
#: As many jobs as one page of a list has.
_MOST_OF_PAGE = 1000


class Jobs:
    """Jobs on one server, under one token."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def submit(self, body: bytes, *, is_yaml: bool, key: str) -> Answer:
        """Submit a specification. With the same ``key`` again it answers with the same job."""
        headers = {"Idempotency-Key": key} if key else {}
        return self._sent(body, is_yaml=is_yaml, headers=headers)

    def dry_run(self, body: bytes, *, is_yaml: bool) -> Answer:
        """Return the server's answer to a specification without submitting it."""
        return self._sent(body, is_yaml=is_yaml, params={"dry_run": "1"})

    def _sent(
        self,
        body: bytes,
        *,
        is_yaml: bool,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        kind = YAML if is_yaml else JSON
        found: Answer = self._client.post_body("/api/v1/jobs", body, kind, params, headers)
        return found

    def queue(self, count: int) -> Answer:
        """Return the first phases that wait."""
        found: Answer = self._client.get("/api/v1/queue", {"count": str(count)})
        return found

    def job(self, name: str) -> Answer:
        """Return a job with its phases and attempts."""
        found: Answer = self._client.get(_path(name))
        return found

    def explain(self, name: str) -> Answer:
        """Return why a job does not run."""
        found: Answer = self._client.get(_path(name, "explain"))
        return found

    def artifacts(self, name: str) -> Answer:
        """Return the artifacts of a job, and where each is."""
        found: Answer = self._client.get(_path(name, "artifacts"))
        return found

    def goodput(self, name: str, span: str | None) -> Answer:
        """Return where the time of a job's GPUs went; ``span``: of that time up to now alone."""
        found: Answer = self._client.get(
            _path(name, "goodput"), {} if span is None else {"range": span}
        )
        return found

    def diagnose(self, name: str) -> Answer:
        """Return what binds a job, and what would help."""
        found: Answer = self._client.get(_path(name, "diagnosis"))
        return found

    def fleet_goodput(self, chosen: Mapping[str, str]) -> Answer:
        """Return where the time of the fleet's GPUs went; ``chosen`` are parameters of the API."""
        found: Answer = self._client.get("/api/v1/goodput", dict(chosen))
        return found

    def losses(self, chosen: Mapping[str, str]) -> Answer:
        """Return what cost most of GPU time; ``chosen`` are parameters of the API."""
        found: Answer = self._client.get("/api/v1/losses", dict(chosen))
        return found

    def budgets(self) -> list[Answer]:
        """Return the newest hundred budgets that one may know of, and how they stand."""
        found: list[Answer] = self._client.get("/api/v1/budgets", {"page_size": "100"})["results"]
        return found

    def act(self, name: str, verb: str, given: Mapping[str, str]) -> Answer:
        """Cancel, hold or release a job; return it."""
        found: Answer = self._client.post(_path(name, verb), dict(given))
        return found

    def newest(self, count: int, chosen: Mapping[str, str]) -> list[Answer]:
        """Return the newest jobs, at most ``count``; ``chosen`` are filters of the API."""
        found: list[Answer] = []
        params = {**chosen, "page_size": str(min(count, _MOST_OF_PAGE))}
        while len(found) < count:
            page = self._client.get("/api/v1/jobs", params)
            found += page["results"]
            if not page["next"]:
                break
            params["cursor"] = parse_qs(urlsplit(page["next"]).query)["cursor"][0]
        return found[:count]

    def me(self) -> str:
        """Return the name of the user whose token it is."""
        return str(self._client.get("/api/v1/me")["username"])

    def priority(self, name: str, priority: int) -> Answer:
        """Give a job another priority; return it."""
        found: Answer = self._client.post(_path(name, "priority"), {"priority": priority})
        return found

    def logs(self, name: str, params: Mapping[str, str]) -> Answer:
        """Return a stretch of what a job says, as the API has it."""
        found: Answer = self._client.get(_path(name, "logs"), params)
        return found

    def open_shell(self, name: str, given: Mapping[str, Any]) -> Answer:
        """Have a terminal opened where a job runs; return its session, node and secret."""
        found: Answer = self._client.post(_path(name, "shells"), dict(given))
        return found

    @property
    def server_url(self) -> str:
        """The server's URL."""
        return self._client.server_url

    def project(self, name: str) -> Answer:
        """Return a project, with what its users may have of it."""
        found: Answer = self._client.get(f"/api/v1/projects/{quote(name, safe='')}")
        return found

    def bookings(self) -> list[Answer]:
        """Return the bookings that are not over, the next first."""
        found = self._client.get("/api/v1/bookings", {"live": "1", "page_size": "1000"})
        return list(reversed(found["results"]))

    def book(self, given: Mapping[str, Any]) -> Answer:
        """Keep hosts for a project, or for maintenance; return the booking."""
        found: Answer = self._client.post("/api/v1/bookings", dict(given))
        return found

    def unbook(self, number: int, why: str) -> Answer:
        """End a booking before its time; return it."""
        found: Answer = self._client.post(f"/api/v1/bookings/{number}/end", {"why": why})
        return found

    def events(self, name: str, count: int) -> list[Answer]:
        """Return the newest events of a job, the oldest of them first."""
        found = self._client.get(_path(name, "events"), {"page_size": str(count)})
        return list(reversed(found["results"]))

    def watch(
        self,
        name: str,
        *,
        every_s: float,
        sleep: Callable[[float], None],
        complain: Callable[[str], None],
    ) -> Iterator[Answer]:
        """Yield the events of a job, from its beginning, until it is over.

        While the server is away it waits, after it has complained once.
        """
        last = 0
        is_away = False
        while True:
            try:
                # The state first: what happened before it has to be among the events then.
                state = self.job(name)["state"]
                found = [each for each in self.events(name, 1000) if each["id"] > last]
            except Unavailable as exc:
                if not is_away:
                    complain(str(exc))
                is_away = True
                sleep(max(every_s, exc.retry_after_s or 0.0))
                continue
            is_away = False
            yield from found
            last = found[-1]["id"] if found else last
            if state in _OVER:
                return
            sleep(every_s)


def _path(name: str, part: str = "") -> str:
    return f"/api/v1/jobs/{quote(name, safe='')}" + (f"/{part}" if part else "")
