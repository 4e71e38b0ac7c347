from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom.agent.devices import ColumnBuffer, Row
from headroom.agent.sources.http import Http
from headroom.agent.sources.periodic import SourceError
from headroom.agent.sources.redfish import Credentials, RedfishMeter, RedfishPoller, Service
from headroom.agent.sources.redfish.readings import (
    QUANTITIES,
    NotTold,
    is_enabled,
    links_in,
    pointed_at,
    quantity,
)
from headroom.contracts import MeterColumns
from tests.data_sets import data_set
from tests.unit.headroom.builders import Clock
from tests.unit.headroom.sources.servers import RedfishServer, make_certificate

CHASSIS = "/redfish/v1/Chassis/1U"
READER = Credentials("reader", "secret")
KEYS = (
    "Reading", "ReadingUnits", "Status", "State", "PowerWatts", "EnergykWh", "PowerControl",
    "PowerConsumedWatts", "Temperatures", "TemperatureSummaryCelsius", "TemperatureCelsius",
    "Intake", "PhysicalContext", "ReadingCelsius", "LifetimeReading", "Power", "@odata.id",
)  # fmt: skip


def archive() -> Path:
    return data_set("redfish-dmtf-mockup") / "public-rackmount1.tar.gz"


@pytest.fixture
def server() -> Iterator[RedfishServer]:
    with RedfishServer(archive()) as made:
        yield made


@pytest.fixture
def locked() -> Iterator[RedfishServer]:
    with RedfishServer(archive(), password="secret") as made:
        yield made


@pytest.fixture
def connect(clock: Clock) -> Iterator[Callable[..., Service]]:
    opened: list[Service] = []

    def run(
        server: RedfishServer,
        credentials: Credentials | None = None,
        auth: Literal["session", "basic"] = "session",
        **http: Any,
    ) -> Service:
        client = Http(timeout_s=2, most_bytes=100_000, **http)
        made = Service(server.url, client, credentials=credentials, auth=auth, monotonic=clock)
        opened.append(made)
        return made

    yield run
    for service in opened:
        service.close()


def poll(service: Service, *meters: RedfishMeter) -> list[Row]:
    return list(RedfishPoller(service, meters).poll())


def resource(server: RedfishServer, path: str) -> dict[str, Any]:
    return server.resources[CHASSIS + path]


# --- What resources say ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "name", "expected"),
    [
        ("/Sensors/TotalPower", "power_w", 374),
        ("/Sensors/TotalEnergy", "energy_j", 325_675 * 3.6e6),
        ("/Sensors/IntakeTemp", "temp_c", 24.8),
        ("/EnvironmentMetrics", "power_w", 374),
        ("/EnvironmentMetrics", "temp_c", 39),
        ("/Power", "power_w", 344),
        ("/PowerSubsystem/PowerSupplies/Bay1/Metrics", "power_w", 937.4),
        ("/ThermalSubsystem/ThermalMetrics", "temp_c", 24.8),
    ],
)
def test_the_resources_of_a_real_schema_are_read(
    server: RedfishServer, path: str, name: str, expected: float
) -> None:
    assert quantity(resource(server, path), name) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("document", "name", "expected"),
    [
        ({"Reading": 3.2, "ReadingUnits": "kW"}, "power_w", 3200),
        ({"Reading": 5, "ReadingUnits": "W.h"}, "energy_j", 18_000),
        ({"PowerWatts": {"Reading": 6100.5}, "EnergykWh": {"Reading": 2}}, "power_w", 6100.5),
        ({"EnergykWh": {"Reading": 2}}, "energy_j", 7.2e6),
        ({"EnergykWh": {"Reading": 2, "LifetimeReading": 10}}, "energy_j", 3.6e7),
        ({"PowerWatts": {"Reading": None}}, "power_w", None),
        ({"Reading": None, "ReadingUnits": "W"}, "power_w", None),
        ({"Reading": 9, "ReadingUnits": "W", "Status": {"State": "Absent"}}, "power_w", None),
        (
            {
                "Temperatures": [
                    {"PhysicalContext": "CPU", "ReadingCelsius": 60},
                    {
                        "PhysicalContext": "Intake",
                        "ReadingCelsius": 0,
                        "Status": {"State": "Disabled"},
                    },
                    {"PhysicalContext": "Intake", "ReadingCelsius": 23},
                ]
            },
            "temp_c",
            23,
        ),
    ],
)
def test_units_states_and_nulls_are_minded(
    document: dict[str, Any], name: str, expected: float | None
) -> None:
    assert quantity(document, name) == expected


@pytest.mark.parametrize(
    ("document", "name"),
    [
        ({}, "power_w"),
        ({"Reading": 5, "ReadingUnits": "V"}, "power_w"),
        ({"PowerWatts": {"Reading": "374"}}, "power_w"),
        ({"PowerControl": []}, "power_w"),
        ({"Temperatures": [{"PhysicalContext": "CPU", "ReadingCelsius": 1}]}, "temp_c"),
        ({"PowerWatts": {"Reading": True}}, "power_w"),
    ],
)
def test_what_a_resource_does_not_tell_is_not_made_up(document: dict[str, Any], name: str) -> None:
    with pytest.raises(NotTold):
        quantity(document, name)


def test_a_pointer_leads_to_one_property(server: RedfishServer) -> None:
    power = resource(server, "/Power")
    assert pointed_at(power, "/PowerControl/0/PowerMetrics/AverageConsumedWatts") == 319
    for wrong in ("/PowerControl/7/PowerConsumedWatts", "/PowerControl/x", "/PowerControl", "/"):
        with pytest.raises((NotTold, TypeError)):
            pointed_at(power, wrong)


# --- Meters ---------------------------------------------------------------------------------------


def test_a_chassis_leads_to_power_and_intake(
    server: RedfishServer, connect: Callable[..., Service]
) -> None:
    assert poll(connect(server), RedfishMeter("m", chassis=CHASSIS)) == [
        {"meter": "m", "power_w": 374, "temp_c": 24.8}
    ]


def test_what_was_found_on_a_chassis_is_not_looked_for_again(
    server: RedfishServer, connect: Callable[..., Service]
) -> None:
    poller = RedfishPoller(connect(server), [RedfishMeter("m", chassis=CHASSIS)])
    list(poller.poll())
    server.requests.clear()
    list(poller.poll())
    assert [path for _, path in server.requests] == [
        f"{CHASSIS}/EnvironmentMetrics",
        f"{CHASSIS}/ThermalSubsystem/ThermalMetrics",
    ]


def test_an_older_chassis_tells_by_its_older_resources(
    server: RedfishServer, connect: Callable[..., Service]
) -> None:
    for link in ("EnvironmentMetrics", "ThermalSubsystem"):
        del resource(server, "")[link]
    server.resources[f"{CHASSIS}/Thermal"]["Temperatures"][0]["PhysicalContext"] = "Intake"
    assert poll(connect(server), RedfishMeter("m", chassis=CHASSIS)) == [
        {"meter": "m", "power_w": 344, "temp_c": 41}
    ]


def test_named_resources_come_before_what_the_chassis_tells(
    server: RedfishServer, connect: Callable[..., Service]
) -> None:
    meter = RedfishMeter(
        "m",
        chassis=CHASSIS,
        power=f"{CHASSIS}/Power#/PowerControl/0/PowerConsumedWatts",
        energy=f"{CHASSIS}/Sensors/TotalEnergy",
    )
    assert poll(connect(server), meter) == [
        {"meter": "m", "power_w": 344, "temp_c": 24.8, "energy_j": 325_675 * 3.6e6}
    ]


def test_a_pdu_tells_power_and_energy_in_one_resource(
    server: RedfishServer, connect: Callable[..., Service]
) -> None:
    place = "/redfish/v1/PowerEquipment/RackPDUs/1/Metrics"
    server.resources[place] = {
        "@odata.type": "#PowerDistributionMetrics.v1_3_0.PowerDistributionMetrics",
        "PowerWatts": {"Reading": 6438},
        "EnergykWh": {"Reading": 56_438},
    }
    meter = RedfishMeter("oslo/pdu-1", power=place, energy=place)
    assert poll(connect(server), meter) == [
        {"meter": "oslo/pdu-1", "power_w": 6438, "energy_j": pytest.approx(56_438 * 3.6e6)}
    ]
    assert [path for _, path in server.requests] == [place]


def test_one_meter_that_fails_does_not_silence_the_others(
    server: RedfishServer, connect: Callable[..., Service]
) -> None:
    meters = [
        RedfishMeter("gone", power=f"{CHASSIS}/Sensors/Missing"),
        RedfishMeter("half", power=f"{CHASSIS}/Sensors/TotalPower", temp=f"{CHASSIS}/Power"),
        RedfishMeter("good", temp=f"{CHASSIS}/Sensors/IntakeTemp"),
    ]
    found: list[Row] = []
    with pytest.raises(SourceError, match=r"gone: .*404.*half: .*temp_c"):
        found.extend(RedfishPoller(connect(server), meters).poll())
    assert found == [
        {"meter": "half", "power_w": 374, "temp_c": None},
        {"meter": "good", "temp_c": 24.8},
    ]


def test_a_chassis_that_tells_nothing_is_an_error(
    server: RedfishServer, connect: Callable[..., Service]
) -> None:
    with pytest.raises(SourceError, match="neither power"):
        poll(connect(server), RedfishMeter("m", chassis="/redfish/v1/Systems"))


def test_the_rows_fit_the_contract(server: RedfishServer, connect: Callable[..., Service]) -> None:
    buffer = ColumnBuffer(MeterColumns)
    for row in poll(connect(server), RedfishMeter("m", chassis=CHASSIS)):
        buffer.append(1.0, row)
    assert buffer.take() == MeterColumns(ts=[1.0], meter=["m"], power_w=[374.0], temp_c=[24.8])


def test_a_chassis_with_nothing_but_its_power_supplies_tells_what_they_take_in(
    server: RedfishServer, connect: Callable[..., Service]
) -> None:
    _leave_only_power_supplies(server)
    bays = f"{CHASSIS}/PowerSubsystem/PowerSupplies"
    second = {**server.resources[f"{bays}/Bay1"], "@odata.id": f"{bays}/Bay2"}
    second["Metrics"] = {"@odata.id": f"{bays}/Bay2/Metrics"}
    server.resources[f"{bays}/Bay2"] = second
    server.resources[f"{bays}/Bay2/Metrics"] = {"InputPowerWatts": {"Reading": 100}}
    assert poll(connect(server), RedfishMeter("m", chassis=CHASSIS)) == [
        {"meter": "m", "power_w": pytest.approx(1037.4)}
    ]
    # The sum of some of them is no reading of the whole.
    server.resources[f"{bays}/Bay2/Metrics"] = {"InputPowerWatts": {"Reading": None}}
    assert poll(connect(server), RedfishMeter("m", chassis=CHASSIS)) == []
    second["Status"] = {"State": "Absent"}
    assert poll(connect(server), RedfishMeter("m", chassis=CHASSIS)) == [
        {"meter": "m", "power_w": 937.4}
    ]


def _leave_only_power_supplies(server: RedfishServer) -> None:
    for link in ("EnvironmentMetrics", "ThermalSubsystem", "Power", "Thermal"):
        resource(server, "").pop(link, None)
    bays = f"{CHASSIS}/PowerSubsystem/PowerSupplies"
    members = [{"@odata.id": f"{bays}/{name}"} for name in ("Bay1", "Bay2")]
    server.resources[bays]["Members"] = members


def test_a_chassis_without_power_is_named_once_and_its_temperature_goes_on(
    server: RedfishServer, connect: Callable[..., Service]
) -> None:
    for link in ("EnvironmentMetrics", "Power", "PowerSubsystem"):
        del resource(server, "")[link]
    poller = RedfishPoller(connect(server), [RedfishMeter("m", chassis=CHASSIS)])
    found: list[Row] = []
    with pytest.raises(SourceError, match=r"m: .* tells neither power nor energy"):
        found.extend(poller.poll())
    assert found == [{"meter": "m", "temp_c": 24.8}]
    assert list(poller.poll()) == found


@pytest.mark.parametrize("odd", [None, 374, "374", [], [None], True])
def test_whatever_an_answer_has_the_meters_after_it_are_read(
    server: RedfishServer, connect: Callable[..., Service], odd: object
) -> None:
    meters = [
        RedfishMeter("odd", chassis=CHASSIS, energy=f"{CHASSIS}/Sensors/TotalEnergy"),
        RedfishMeter("good", temp=f"{CHASSIS}/Sensors/IntakeTemp"),
    ]
    for path in ("/EnvironmentMetrics", "/Power", "/ThermalSubsystem/ThermalMetrics"):
        kept = dict(resource(server, path))
        for key in kept:
            resource(server, path)[key] = odd
            found: list[Row] = []
            with contextlib.suppress(SourceError):
                found.extend(RedfishPoller(connect(server), meters).poll())
            assert found[-1] == {"meter": "good", "temp_c": 24.8}, (path, key)
            assert found[0]["energy_j"] == pytest.approx(325_675 * 3.6e6)
            resource(server, path)[key] = kept[key]


def test_a_number_that_stands_by_itself_is_taken() -> None:
    assert quantity({"PowerWatts": 374.5}, "power_w") == 374.5


_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=3), inner, max_size=5)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(KEYS), _JSON), st.sampled_from(QUANTITIES))
def test_no_answer_raises_anything_but_that_it_does_not_tell(
    document: dict[str, Any], name: str
) -> None:
    links_in(document, "Power")
    is_enabled(document)
    with contextlib.suppress(NotTold):
        assert _is_reading(quantity(document, name))
    with contextlib.suppress(NotTold):
        assert _is_reading(pointed_at(document, "/PowerWatts/0"))


def _is_reading(value: float | None) -> bool:
    return value is None or math.isfinite(value)


def test_a_resource_that_is_not_answered_is_waited_for_once_in_a_poll(
    server: RedfishServer, connect: Callable[..., Service]
) -> None:
    meters = [RedfishMeter(f"m{i}", power="/redfish/v1/Slow") for i in range(3)]
    with pytest.raises(SourceError, match=r"m0: .*m1: .*m2: "):
        poll(connect(server), *meters)
    assert [path for _, path in server.requests] == ["/redfish/v1/Slow"]


def test_one_resource_that_fails_does_not_hide_the_rest_of_its_chassis(
    server: RedfishServer, connect: Callable[..., Service]
) -> None:
    del server.resources[f"{CHASSIS}/EnvironmentMetrics"]
    assert poll(connect(server), RedfishMeter("m", chassis=CHASSIS)) == [
        {"meter": "m", "power_w": 344, "temp_c": 24.8}
    ]


# --- Who we are -----------------------------------------------------------------------------------


def test_a_session_is_opened_once_and_closed_in_the_end(
    locked: RedfishServer, connect: Callable[..., Service]
) -> None:
    service = connect(locked, READER)
    for _ in range(3):
        service.get(CHASSIS)
    assert len(locked.sessions) == 1
    service.close()
    assert not locked.sessions
    assert [method for method, _ in locked.requests] == ["POST", "GET", "GET", "GET", "DELETE"]


def test_a_session_that_no_header_places_is_closed_too(
    locked: RedfishServer, connect: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = locked.answer

    def without_location(*request: Any) -> tuple[int, dict[str, str], bytes]:
        status, headers, body = answer(*request)
        place = headers.pop("Location", None)
        return status, headers, json.dumps({"@odata.id": place}).encode() if place else body

    monkeypatch.setattr(locked, "answer", without_location)
    service = connect(locked, READER)
    service.get(CHASSIS)
    service.close()
    assert not locked.sessions


def test_a_session_that_ended_is_opened_anew(
    locked: RedfishServer, connect: Callable[..., Service]
) -> None:
    service = connect(locked, READER)
    service.get(CHASSIS)
    locked.sessions.clear()
    assert service.get(CHASSIS)["Id"] == "1U"


def test_basic_authentication_needs_no_session(
    locked: RedfishServer, connect: Callable[..., Service]
) -> None:
    assert connect(locked, READER, "basic").get(CHASSIS)["Id"] == "1U"
    assert not locked.sessions


@pytest.mark.parametrize("auth", ["session", "basic"])
def test_a_wrong_password_is_not_tried_until_the_account_is_locked(
    locked: RedfishServer, connect: Callable[..., Service], clock: Clock, auth: str
) -> None:
    service = connect(locked, Credentials("reader", "wrong"), auth)
    for _ in range(5):
        with pytest.raises(SourceError, match="user name or password"):
            service.get(CHASSIS)
        clock.now += 60
    assert len(locked.requests) == 1
    clock.now += 600
    with pytest.raises(SourceError):
        service.get(CHASSIS)
    assert len(locked.requests) == 2


def test_a_password_is_never_shown() -> None:
    assert "secret" not in repr(READER)


def test_a_certificate_is_checked_unless_that_is_switched_off(
    tmp_path: Path, connect: Callable[..., Service]
) -> None:
    certificate = make_certificate(tmp_path)
    with RedfishServer(archive(), certificate=certificate) as server:
        with pytest.raises(SourceError, match="CERTIFICATE_VERIFY_FAILED"):
            connect(server).get(CHASSIS)
        trusted = tmp_path / "only-certificate.pem"
        assert connect(server, ca_file=trusted).get(CHASSIS)["Id"] == "1U"
        assert connect(server, verify=False).get(CHASSIS)["Id"] == "1U"


@pytest.mark.parametrize("answer", [b"", b"[1]", b"<html>", b"\xff"])
def test_what_is_no_resource_is_an_error(
    server: RedfishServer,
    connect: Callable[..., Service],
    monkeypatch: pytest.MonkeyPatch,
    answer: bytes,
) -> None:
    monkeypatch.setattr(server, "answer", lambda *request: (200, {}, answer))
    with pytest.raises(SourceError):
        connect(server).get(CHASSIS)
