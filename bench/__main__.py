"""``python -m bench NAME [NAME…]``; ``all`` runs every one."""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys

#: Modules of this package with a ``run()``.
NAMES = ("ingest", "pages", "visible", "inventory", "start", "physics")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="+", choices=[*NAMES, "all"])
    names = parser.parse_args().names
    if names != ["all"] and len(names) == 1:
        importlib.import_module(f"bench.{names[0]}").run()
        return 0
    # A process each: Django reads its settings once, and each benchmark has servers of its own.
    chosen = NAMES if "all" in names else names
    return max(subprocess.call([sys.executable, "-m", "bench", name]) for name in chosen)


if __name__ == "__main__":
    sys.exit(main())
