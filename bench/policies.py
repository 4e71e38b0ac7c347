"""The cost of decisions: headroom of a fleet, a thousand rules on it, and a day replayed.

Headroom and rules are computed in this process, on arrays that are in memory, as in a worker. The
replay reads its day from the server's own store.
"""

from __future__ import annotations

import time

from bench import django_in, report
from bench.stack import running

REPLAYED_H = 24.0
#: It ends an hour ago, so that nothing of it is still awaited.
_QUIET_H = 1.0

NOTES = {
    "headroom_100k_ms": "median of an evaluation: all scopes of all kinds, all columns",
    "headroom_100k_slopes_ms": "besides, each time the past is taken up",
    "headroom_100k_conditions_ms": "what one site's conditions come to, when somebody asks",
    "rules_1000_3000_s": "median of a round in which rules begin to fire and stop",
    "replay_24h_512_s": "a rule over a day of readings each 10 s",
}


def run() -> None:
    with running() as stack:
        django_in.set_up(stack)
        # Both import Django's models, which cannot be before it is set up.
        from bench import policies_headroom, policies_rules

        begin = time.time() - (REPLAYED_H + _QUIET_H) * 3600.0
        rows = policies_rules.store_readings(begin, REPLAYED_H)
        figures = {
            **policies_headroom.measure(),
            **policies_rules.measure_evaluation(),
            **policies_rules.measure_replay(begin, REPLAYED_H),
            "replay_rows": rows,
        }
    report.show("policies", figures, NOTES)
    print(f"kept in {report.keep('policies', figures)}")
