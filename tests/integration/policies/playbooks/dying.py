"""A worker that dies at a given point, as a real process: ``python -m … dying``.

Reads one JSON object per line, does what it says in a process of its own, and answers with one
line. Points are counted: before each statement, before each commit, and after each commit.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import django

#: What the run's clock shows while a worker plays it, s after its start.
TIMES = (0, 2, 4, 7)


class Points:
    """Counts points, and dies at one of them."""

    def __init__(self, die_at: int, commits_alone: bool) -> None:
        self.count = 0
        self._die_at = die_at
        self._commits_alone = commits_alone

    def pass_one(self) -> None:
        self.count += 1
        if self.count == self._die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def around_statement(self, execute: Any, sql: Any, params: Any, many: Any, context: Any) -> Any:
        if not self._commits_alone:
            self.pass_one()
        return execute(sql, params, many, context)

    def around_commit(self, commit: Callable[[], None]) -> Callable[[], None]:
        def passed() -> None:
            self.pass_one()
            commit()
            self.pass_one()

        return passed


def play(order: dict[str, Any]) -> int:
    """Play a run as a worker does, and return how many points it passed."""
    from django.db import connection

    from policies import current
    from policies.incidents.models import Delivery
    from policies.playbooks import runs
    from policies.playbooks.run_context import Conditions
    from tests.integration.policies.playbooks.conftest import Readings

    readings: Any = Readings(order["readings"])
    current.headroom = lambda now: readings
    points = Points(order["die_at"], order["commits_alone"])
    start = datetime.fromisoformat(order["start"])
    connection.ensure_connection()
    wrapper: Any = connection
    wrapper._commit = points.around_commit(wrapper._commit)
    with connection.execute_wrapper(points.around_statement):
        for seconds in TIMES:
            now = start + timedelta(seconds=seconds)
            runs.advance(order["run"], now, Conditions(now))
            # Another worker delivers what waits.
            Delivery.objects.filter(state="queued").update(state="sent", attempts=1)
    return points.count


def warm_up(order: dict[str, Any]) -> None:
    """Read and compile once what each child would have to."""
    from django.db import connection

    from fleet import snapshot
    from policies.playbooks.models import PlaybookRun

    snapshot.current()
    _ = PlaybookRun.objects.select_related("version").get(pk=order["run"]).version.program
    # A child must not share the connection of its parent.
    connection.close()


def in_a_process(order: dict[str, Any]) -> dict[str, Any]:
    """Play in a child, and say how it ended."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, str(play(order)).encode())
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(writing)
    said = os.read(reading, 100).decode()
    os.close(reading)
    status = os.waitpid(child, 0)[1]
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    return {"killed": killed, "failed": not killed and status != 0, "points": int(said or 0)}


def main() -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
    django.setup()
    # Imported before the fork, so that each child is there at once.
    import policies.playbooks.tasks  # noqa: F401
    from policies.playbooks import builtin

    builtin.texts()
    for line in sys.stdin:
        order = json.loads(line)
        warm_up(order)
        print(json.dumps(in_a_process(order)), flush=True)


if __name__ == "__main__":
    main()
