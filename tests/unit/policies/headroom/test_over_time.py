"""Headroom over time is, at each moment, the headroom that was live then."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from fleet.tables import METER_KINDS, METER_TARGETS, FleetArrays, MeterTable
from policies.headroom.columns import FIELDS, Floats
from policies.headroom.evaluate import Headroom, evaluate
from policies.headroom.inputs import Limits, Past, Reservations, Steps
from policies.headroom.past import (
    LINK_SLOTS,
    LINKS_EVERY_S,
    LOAD_SLOTS,
    LOADS_EVERY_S,
    link_trends,
    links_of,
    load_trends,
    loads_of,
)
from policies.limiting import Term, limits_in, limits_over
from policies.restrictions.kinds import RestrictionKind
from policies.restrictions.strictest import ActiveRestriction, InForce
from policies.rules.recorded import PastOverTime
from policies.scopes import Scope, ScopeKind
from telemetry.live_frame import DTYPES, LiveFrame, RecordedFrame, never_seen
from telemetry.summary import HostCurves
from tests.builders.arrays import SLOWDOWN_C, SLOWDOWN_MEM_C, make_arrays
from tests.unit.policies.headroom.scenes import NOW, fitted, with_mounts

STEP_S, STEPS = 10.0, 18
TIMES: Floats = NOW + STEP_S * np.arange(STEPS, dtype=np.float64)

#: What things may read, by kind; of each field a part is missing.
READ = {
    "gpu": {
        "power_w": (50.0, 900.0),
        "power_limit_w": (300.0, 700.0),
        "temp_c": (25.0, SLOWDOWN_C + 4.0),
        "temp_mem_c": (25.0, SLOWDOWN_MEM_C),
        "temp_limit_c": (80.0, 90.0),
        "sm_mhz": (300.0, 1980.0),
    },
    "host": {"power_w": (500.0, 6_000.0), "cpu_power_w": (100.0, 5_000.0)},
    "meter": {"power_w": (-500.0, 20_000.0), "temp_c": (15.0, 40.0)},
    "link": {
        "tx_bytes_per_s": (0.0, 1.2e11),
        "rx_bytes_per_s": (0.0, 1.2e11),
        "retransmits_per_s": (0.0, 9.0),
        "latency_s": (1e-6, 1e-2),
    },
    "storage": {"fsync_s": (0.001, 0.1), "read_s": (0.001, 0.01)},
}


def a_fleet(rng: np.random.Generator) -> FleetArrays:
    """Two sites with meters of all kinds on anything, racks on one feed, and things unrated."""
    fleet = make_arrays(sites=2, racks=5, nodes=2, gpus=2, budget_w=12_000.0, pdu_w=40_000.0)
    sizes = {
        "power_domain": len(fleet.domains),
        "cooling_zone": len(fleet.zones),
        "rack": len(fleet.racks),
        "node": len(fleet.nodes),
    }
    count = 24
    kinds = rng.integers(0, len(METER_TARGETS), count)
    rows = [rng.integers(sizes[METER_TARGETS[kind]]) for kind in kinds]
    meters = MeterTable(
        ids=np.arange(count) + 1,
        names=np.array([f"m{i}" for i in range(count)], dtype=np.object_),
        kind=rng.choice([METER_KINDS.index("power"), METER_KINDS.index("temperature")], count),
        target_kind=kinds,
        target=np.array(rows),
    )

    def now_and_then(values: Any, nothing: float) -> Any:
        return np.where(rng.random(len(values)) < 0.15, nothing, values)

    return replace(
        fleet,
        meters=meters,
        gpus=replace(fleet.gpus, rated_w=now_and_then(fleet.gpus.rated_w, np.nan)),
        nodes=replace(fleet.nodes, host_rated_w=now_and_then(fleet.nodes.host_rated_w, np.nan)),
        racks=replace(
            fleet.racks,
            feed_b=now_and_then(fleet.racks.feed_b, -1),
            zone=now_and_then(fleet.racks.zone, -1),
        ),
    )


def ids_of(fleet: FleetArrays) -> dict[str, Any]:
    tables = {"gpu": fleet.gpus, "host": fleet.nodes, "link": fleet.links, "meter": fleet.meters}
    # A mount for each node, with the node's id.
    return {**{kind: table.ids for kind, table in tables.items()}, "storage": fleet.nodes.ids}


def live_frames(fleet: FleetArrays, rng: np.random.Generator) -> list[LiveFrame]:
    """Return the frames of a fleet of which some is never heard, and some falls silent."""
    ids = ids_of(fleet)
    arrays = {kind: never_seen(kind, len(of_kind) + 1) for kind, of_kind in ids.items()}
    talks = {kind: rng.choice([0.0, 0.1, 0.9], len(each), p=[0.1, 0.3, 0.6])
             for kind, each in ids.items()}  # fmt: skip
    frames = []
    for now in TIMES.tolist():
        for kind, fields in READ.items():
            heard = ids[kind][rng.random(len(ids[kind])) < talks[kind]]
            arrays[kind][heard] = never_seen(kind, len(heard))
            arrays[kind]["ts"][heard] = now - rng.uniform(0.0, STEP_S, len(heard))
            for name, (low, high) in fields.items():
                values = rng.uniform(low, high, len(heard))
                missing = rng.random(len(heard)) < 0.1
                arrays[kind][name][heard] = np.where(missing, np.nan, values)
            if kind == "gpu":
                arrays[kind]["throttle"][heard] = rng.choice([0, 0x20], len(heard))
        copies = {kind: records.copy() for kind, records in arrays.items()}
        frames.append(LiveFrame("1", copies))
    return frames


def recorded(fleet: FleetArrays, frames: list[LiveFrame]) -> RecordedFrame:
    ids = ids_of(fleet)
    return RecordedFrame(
        ids,
        {
            kind: {
                name: np.stack([frame.fields(kind, ids[kind], name)[name] for frame in frames])
                for name in DTYPES[kind].names or ()
            }
            for kind in ids
        },
    )


def some_terms(fleet: FleetArrays, rng: np.random.Generator) -> list[Term]:
    """Return restrictions that come and go."""
    scopes = [
        Scope(ScopeKind.SITE, str(fleet.sites.names[0])),
        Scope(ScopeKind.POWER_DOMAIN, str(fleet.domains.paths[1])),
        *(Scope(ScopeKind.RACK, str(name)) for name in fleet.racks.paths[:3]),
        Scope(ScopeKind.NODE, str(fleet.nodes.names[4])),
        Scope(ScopeKind.GPU, str(fleet.gpu_names[7])),
    ]
    links = [Scope(ScopeKind.LINK, str(name)) for name in fleet.links.names[:2]]
    found = []
    at = datetime.fromtimestamp(NOW, UTC)
    for number in range(int(rng.integers(0, 9))):
        is_cap = rng.random() < 0.7
        kind = RestrictionKind.POWER_CAP_W if is_cap else RestrictionKind.LINK_SHARE
        where = rng.choice(len(scopes if is_cap else links))
        scope = (scopes if is_cap else links)[where]
        value = float(rng.uniform(200, 650) if is_cap else rng.uniform(0.1, 0.9))
        since = NOW + float(rng.choice([-50.0, 0.0, 10.0, 37.5, 120.0]))
        restriction = ActiveRestriction(number, kind, scope, value, "", "rule:x", "", at, at)
        found.append(Term(restriction, since, since + float(rng.choice([15.0, 60.0, 1e4]))))
    return found


def limits_at(terms: list[Term], fleet: FleetArrays, now: float) -> Limits:
    restrictions = tuple(each.restriction for each in terms if each.since <= now < each.until)
    return limits_in(InForce(datetime.fromtimestamp(now, UTC), restrictions), fleet)


def a_past(fleet: FleetArrays, rng: np.random.Generator) -> Past:
    """Return fits of some GPUs and hosts, mounts, lemons and Xids."""
    nodes = len(fleet.nodes)
    past = fitted(fleet, rng.choice([np.nan, 0.05, 0.09], len(fleet.gpus)))
    curve = rng.choice([np.nan, 700.0], nodes)
    return replace(
        with_mounts(fleet, past),
        hosts=HostCurves(curve, np.where(np.isnan(curve), np.nan, 0.2)),
        lemon_gpus=rng.integers(0, 2, nodes),
        xids=rng.integers(0, 3, nodes),
    )


def some_reservations(fleet: FleetArrays, rng: np.random.Generator) -> Reservations:
    return Reservations(
        rack_w=rng.uniform(0, 30_000, len(fleet.racks)),
        node_w=rng.uniform(0, 9_000, len(fleet.nodes)),
        link_bits_per_s=rng.uniform(0, 1e11, len(fleet.links)),
        storage_bytes_per_s=rng.choice([0.0, 1e9], len(fleet.storage)),
        steps=Steps(
            rng.integers(0, len(fleet.racks), 6),
            NOW + rng.uniform(0, 4_000, 6),
            rng.uniform(-900, 900, 6),
        ),
    )


@dataclass
class Live:
    """Headroom as a worker has it: each evaluation knows the slots that were noted before it."""

    fleet: FleetArrays
    lasting: Past
    given: dict[str, Any]

    def each(self, frames: list[LiveFrame], terms: list[Term]) -> Iterator[Headroom]:
        loads: list[tuple[float, Any]] = []
        links: list[tuple[float, Any]] = []
        series = loads_of(evaluate(self.fleet, frames[0], now=NOW)).size
        for now, frame in zip(TIMES.tolist(), frames, strict=True):
            slopes, still_s = load_trends(self.fleet, *_window(loads, LOAD_SLOTS, series))
            slope, used = link_trends(*_window(links, LINK_SLOTS, len(self.fleet.links)))
            past = replace(
                self.lasting,
                slopes={**slopes, ScopeKind.LINK: slope},
                gpu_still_s=still_s,
                link_bits_per_s=used,
            )
            limits = limits_at(terms, self.fleet, now)
            found = evaluate(
                self.fleet, frame, now=now, past=past, restrictions=limits, **self.given
            )
            if not loads or now - loads[-1][0] >= LOADS_EVERY_S:
                loads.append((now, loads_of(found)))
            if not links or now - links[-1][0] >= LINKS_EVERY_S:
                links.append((now, links_of(found)))
            yield found


def _window(slots: list[tuple[float, Any]], most: int, series: int) -> tuple[Any, Any]:
    last = slots[-most:]
    values = [slot for _, slot in last]
    empty = np.zeros((0, series), np.float32)
    return np.array([at for at, _ in last]), np.stack(values) if values else empty


def in_pieces(
    fleet: FleetArrays, frames: list[LiveFrame], terms: list[Term], live: Live, cut: int
) -> list[tuple[slice, Headroom]]:
    """Return the headroom of all times, evaluated in two pieces."""
    past = PastOverTime(fleet, live.lasting)
    found = []
    for piece in (slice(0, cut), slice(cut, STEPS)):
        times = TIMES[piece]
        measured = evaluate(
            fleet,
            recorded(fleet, frames[piece]),
            now=times[:, None],
            past=live.lasting,
            restrictions=limits_over(terms, fleet, times),
            **live.given,
        )
        over = past.take(measured, times, loads=True, links=True)
        found.append((piece, measured.with_past(over)))
    return found


def assert_same(found: Any, expected: Any, what: object) -> None:
    if expected.dtype.kind in "fi":
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9, err_msg=str(what))
    else:
        np.testing.assert_array_equal(found, expected, str(what))


#: A smaller seed is no smaller case: what fails is told at once.
_AS_FOUND = tuple(phase for phase in Phase if phase is not Phase.shrink)


@settings(max_examples=25, deadline=None, phases=_AS_FOUND)
@given(seed=st.integers(0, 2**32 - 1), cut=st.integers(1, STEPS - 1), reserved=st.booleans())
def test_every_column_of_every_scope_is_that_of_live_headroom(
    seed: int, cut: int, reserved: bool
) -> None:
    rng = np.random.default_rng(seed)
    fleet = a_fleet(rng)
    frames, terms = live_frames(fleet, rng), some_terms(fleet, rng)
    given = {"reservations": some_reservations(fleet, rng)} if reserved else {}
    live = Live(fleet, a_past(fleet, rng), given)
    pieces = in_pieces(fleet, frames, terms, live, cut)
    expected = list(live.each(frames, terms))
    for piece, over_time in pieces:
        for place, then in enumerate(expected[piece]):
            for kind, fields in FIELDS.items():
                made, was = over_time.table(kind), then.table(kind)
                assert made.columns.keys() == was.columns.keys() == fields.keys()
                for name, values in was.columns.items():
                    column = made.columns[name]
                    found = column[place] if column.ndim == 2 else column
                    assert_same(found, values, (kind, name, piece.start + place))


def test_a_moment_of_many_has_no_clock_of_its_own() -> None:
    fleet = make_arrays(racks=1)
    frames = live_frames(fleet, np.random.default_rng(1))
    many = evaluate(fleet, recorded(fleet, frames), now=TIMES[:, None])
    with pytest.raises(TypeError):
        _ = many.at
