import pytest

from config.embedded.postgres import memory_bytes, tuning

GIB = 1024**3


@pytest.mark.parametrize(
    ("memory", "buffers"), [(64 * GIB, "512MB"), (2 * GIB, "256MB"), (GIB // 4, "64MB")]
)
def test_buffers_follow_memory(memory: int, buffers: str) -> None:
    assert tuning(memory, durable=True)["shared_buffers"] == buffers


def test_what_is_acknowledged_is_on_disk() -> None:
    settings = tuning(GIB, durable=True)

    assert settings["synchronous_commit"] == "on"
    assert "fsync" not in settings


def test_commits_stay_synchronous_in_tests_so_that_killing_loses_nothing() -> None:
    settings = tuning(GIB, durable=False)

    assert settings["synchronous_commit"] == "on"
    assert settings["fsync"] == "off"


def test_memory_is_known() -> None:
    assert memory_bytes() > 64 * 1024**2
