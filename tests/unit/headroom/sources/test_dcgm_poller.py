from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headroom.agent.devices import Row
from headroom.agent.sources.dcgm import DcgmPoller
from headroom.agent.sources.periodic import SourceError
from tests.data_sets import data_set
from tests.unit.headroom.sources.servers import TextServer

XID = 'DCGM_FI_DEV_XID_ERRORS{{gpu="0",Hostname="h"}} {}\n'


@pytest.fixture
def exporter() -> Iterator[TextServer]:
    with TextServer((data_set("dcgm-exporter-text") / "l4_idle_full.prom").read_text()) as made:
        yield made


def poller(exporter: TextServer, **given: object) -> DcgmPoller:
    known = {"node": "", "nodes": {}, "timeout_s": 2.0, **given}
    return DcgmPoller(f"{exporter.url}/metrics", **known)  # type: ignore[arg-type]


def test_a_real_exposition_becomes_a_row_for_each_gpu(exporter: TextServer) -> None:
    (row,) = poller(exporter).poll()
    assert row["node"] == "i-030791dc5a37cd257"
    assert (row["gpu"], row["power_w"], row["temp_c"]) == (0, 16.365, 31)
    # A counter, whose name the parser of the text format changes.
    assert row["energy_j"] == pytest.approx(4742.776)
    assert exporter.requests == [("GET", "/metrics")]


def test_the_node_may_be_named_or_its_host_mapped(exporter: TextServer) -> None:
    (row,) = poller(exporter, node="oslo-a01-n1").poll()
    assert row["node"] == "oslo-a01-n1"
    (row,) = poller(exporter, nodes={"i-030791dc5a37cd257": "oslo-a01-n2"}).poll()
    assert row["node"] == "oslo-a01-n2"


def test_an_exporter_that_names_no_host_is_this_nodes(exporter: TextServer) -> None:
    exporter.text = 'DCGM_FI_DEV_GPU_TEMP{gpu="3"} 40\n'
    (row,) = poller(exporter).poll()
    assert (row["node"], row["gpu"]) == (None, 3)


def test_an_xid_is_told_once_when_it_is_news(exporter: TextServer) -> None:
    source = poller(exporter)
    told = []
    for xid in (31, 31, 79, 79, 0, 79):  # the first may be days old
        exporter.text = XID.format(xid)
        (row,) = source.poll()
        told.append(row["xid"])
    assert told == [None, None, 79, None, None, 79]


@pytest.mark.parametrize("text", ["", "up 1\n", "<html>hello</html>", '{"status": "ok"}'])
def test_what_is_no_exposition_of_dcgm_is_an_error(exporter: TextServer, text: str) -> None:
    exporter.text = text
    with pytest.raises(SourceError):
        list(poller(exporter).poll())


def test_a_line_that_cannot_be_read_costs_itself_alone_and_is_named(exporter: TextServer) -> None:
    good = [f'DCGM_FI_DEV_GPU_TEMP{{gpu="{gpu}",Hostname="h"}} {40 + gpu}' for gpu in range(8)]
    bad = 'DCGM_FI_DEV_POWER_USAGE{gpu="3",Hostname="h"} 4x1.5'
    exporter.text = "\n".join([*good[:4], bad, '# HELP odd "', "DCGM_FI{", *good[4:], ""])
    found: list[Row] = []
    with pytest.raises(SourceError, match=r"line 5 .*POWER_USAGE.*4x1\.5.*, and 1 lines more"):
        found.extend(poller(exporter).poll())
    assert [row["temp_c"] for row in found] == [40 + gpu for gpu in range(8)]


@given(st.integers(0, 7), st.text(max_size=40))
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_a_line_is_the_others_are_read(
    exporter: TextServer, place: int, text: str
) -> None:
    lines = [f'DCGM_FI_DEV_GPU_TEMP{{gpu="{gpu}",Hostname="h"}} {40 + gpu}' for gpu in range(8)]
    lines.insert(place, "X" + "".join(text.splitlines()))
    exporter.text = "\n".join(lines)
    found: list[Row] = []
    with contextlib.suppress(SourceError):
        found.extend(poller(exporter).poll())
    assert [row["temp_c"] for row in found] == [40 + gpu for gpu in range(8)]


def test_a_redirect_is_not_followed(exporter: TextServer) -> None:
    exporter.status, exporter.headers = 302, {"Location": "http://127.0.0.1:1/"}
    with pytest.raises(SourceError, match="answers 302"):
        list(poller(exporter).poll())


def test_an_endless_answer_is_cut_off(
    exporter: TextServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headroom.agent.sources.dcgm._MOST_BYTES", 1000)
    with pytest.raises(SourceError, match="more than 1000 bytes"):
        list(poller(exporter).poll())


def test_nobody_there_is_an_error() -> None:
    source = DcgmPoller("http://127.0.0.1:1/metrics", node="", nodes={}, timeout_s=0.5)
    with pytest.raises(SourceError, match="cannot be read"):
        list(source.poll())
