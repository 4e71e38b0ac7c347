"""``python -m bench NAME [NAME…]``; ``all`` runs every one."""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys

#: Modules of this package with a ``run()``.
NAMES = (
    "ingest",
    "pages",
    "visible",
    "connections",
    "inventory",
    "start",
    "fuzz",
    "agent",
    "storage",
    "physics",
    "telemetry",
    "timelines",
    "policies",
    "admission",
    "admission_explain",
    "backfill",
    "checkpoints",
    "estimates",
    "accounts",
    "failures",
    "stragglers",
    "slurm",
    "scaling",
    "twin",
    "training",
    "traffic",
    "rollouts",
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="+", choices=[*NAMES, "all"])
    parser.add_argument("--minutes", type=float, help="how long telemetry keeps its pace up")
    options = vars(parser.parse_args())
    names = options.pop("names")
    if names != ["all"] and len(names) == 1:
        given = {name: value for name, value in options.items() if value is not None}
        importlib.import_module(f"bench.{names[0]}").run(**given)
        return 0
    # A process each: Django reads its settings once, and each benchmark has servers of its own.
    chosen = NAMES if "all" in names else names
    return max(subprocess.call([sys.executable, "-m", "bench", name]) for name in chosen)


if __name__ == "__main__":
    sys.exit(main())
