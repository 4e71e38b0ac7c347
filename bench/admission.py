"""The cost of admission: a cycle on a whole fleet, an explanation, and jobs through the service.

Cycles and explanations are computed in this process, on a snapshot that is in memory. The service
is measured from the API to the release of a job, beside web, worker, Postgres and Valkey.
"""

from __future__ import annotations

import os

from bench import admission_service, django_in, report
from bench.admission_service import ENVIRONMENT
from bench.stack import running

NOTES = {
    "cycle_1000_100k_s": "median of a cycle: order, placement, reservations, reasons",
    "cycle_1000_100k_cpu_s": "of it what this process computed; target 0.5",
    "cycle_5000_100k_cpu_s": "the same with 5,000 that wait; target 1.2",
    "cycle_50000_100k_cpu_s": "with 50,000, of which 10,000 are tried; target 3",
    "explain_p95_ms": "one job of the 1,000: all reasons, changes tried; target 50",
    "explain_50000_p95_ms": "one of the 50,000, in the process that decided; target 200",
    "estimates_1000_100k_cpu_s": "ranges of starts of the 1,000; each minute, beside the cycles",
    "estimates_10000_100k_cpu_s": "of 10,000",
    "placed_queue_order_pct": "GPUs of the exact optimum, 200 small fleets of the day; target 95",
    "placed_queue_order_bound_pct": "the most that any placement has in that order",
    "placed_own_order_pct": "the same, the least watts for a GPU first; target 98.5",
    "placed_own_order_bound_pct": "the most that any placement has in that order",
    "admissions_per_s": "15,000 jobs, API to dispatched, no machine on the far side; target 500",
}


def run() -> None:
    os.environ.update(ENVIRONMENT)
    with running() as stack:
        django_in.set_up(stack)
        # Imports Django's models, which cannot be before it is set up.
        from bench import admission_cycle, admission_placed

        figures = {
            **admission_cycle.measure(),
            **admission_placed.measure(),
            **admission_service.measure(stack),
        }
    report.show("admission", figures, NOTES)
    print(f"kept in {report.keep('admission', figures)}")
