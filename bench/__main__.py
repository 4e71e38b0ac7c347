"""``python -m bench NAME [NAME…]``; ``all`` runs every one."""

from __future__ import annotations

import argparse
import importlib

#: Modules of this package with a ``run()``.
NAMES = ("ingest", "pages", "visible", "inventory", "start")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="+", choices=[*NAMES, "all"])
    chosen = parser.parse_args().names
    for name in NAMES if "all" in chosen else chosen:
        importlib.import_module(f"bench.{name}").run()


if __name__ == "__main__":
    main()
