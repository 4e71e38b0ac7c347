"""``python -m headroom`` is the command ``headroom``."""

from headroom.cli import main

if __name__ == "__main__":
    main(prog_name="headroom")
