"""Where the processes of a command meet."""

from __future__ import annotations

import socket
from pathlib import Path

from lab.matrix.surroundings import _free_port

OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_no_connection_takes_the_port_before_the_command_does() -> None:
    first, _ = map(int, OUTGOING.read_text().split())
    assert all(_free_port(f"cell-{n}") < first for n in range(50))


def test_a_port_at_which_somebody_listens_is_passed_over() -> None:
    port = _free_port("cell")
    with socket.create_server(("127.0.0.1", port)):
        assert _free_port("cell") > port
    assert _free_port("other") != port
