import socket
from pathlib import Path

import pytest

from config.embedded.ports import choose_port, port_is_free, port_range


def test_a_port_that_somebody_listens_on_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert not port_is_free(port)
    assert port_is_free(port)


def test_the_chosen_port_is_free_and_not_one_that_clients_get() -> None:
    port = choose_port()

    assert port_is_free(port)
    assert port in port_range()


@pytest.mark.parametrize(
    ("kernel_says", "expected"),
    [
        ("32768\t60999\n", range(15_000, 32_768)),
        ("20000 60999", range(15_000, 20_000)),
        # So wide that nothing is left below: better a chance of a clash than no port.
        ("1024 65535", range(15_000, 32_768)),
        ("", range(15_000, 32_768)),
        (None, range(15_000, 32_768)),
    ],
)
def test_ports_lie_below_those_of_clients(
    tmp_path: Path, kernel_says: str | None, expected: range
) -> None:
    path = tmp_path / "ip_local_port_range"
    if kernel_says is not None:
        path.write_text(kernel_says)

    assert port_range(path) == expected
