"""Artifacts that phases hand on: what waits for them, and where what takes them may run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.core.cycle.gates import gates
from admission.core.handover import Handover, Recorded, placed, waits_for
from admission.core.reasons import ReasonToken
from admission.core.request import Request
from admission.core.snapshot import Pending
from lab.matrix.result import Verdict, verdict_of

NOW = 1_000_000.0
SITES = ("bergen", "oslo", "turin")
MODEL, LOG = ("train", "model"), ("train", "log")


def make_request(*takes: tuple[str, str], **given: Any) -> Request:
    return Request(
        key="llm/promote", job="llm", phase="promote", project="vision", job_class="any",
        priority=0, submitted_at=NOW, gpus=1, min_gpus=1, walltime_s=60.0,
        **{"takes": takes, **given},
    )  # fmt: skip


def at(*sites: str, differs: tuple[str, ...] = ()) -> Recorded:
    """Return an artifact that was made at the first of ``sites``, and is whole at all of them."""
    found = {**dict.fromkeys(sites, "sha256:a"), **dict.fromkeys(differs, "sha256:b")}
    return Recorded("sha256:a", 7, sites[0], found)


def test_a_phase_waits_for_an_artifact_that_no_machine_has_measured() -> None:
    (reason,) = waits_for(make_request(MODEL, LOG), Handover({LOG: at("oslo")}))
    assert reason.token is ReasonToken.ARTIFACT_PENDING
    assert (reason.need, reason.have, reason.short, reason.unit) == (2.0, 1.0, 1.0, "artifacts")
    assert reason.sentence == (
        "waits for artifact model of phase train: no machine has measured it yet"
    )
    assert reason.evidence["artifacts"] == [
        {"artifact": "train/model", "sites": []}, {"artifact": "train/log", "sites": ["oslo"]},
    ]  # fmt: skip


def test_a_phase_that_takes_artifacts_stands_only_where_all_of_them_are() -> None:
    request = make_request(MODEL, LOG)
    known = Handover({MODEL: at("oslo", "bergen"), LOG: at("bergen", "turin")})
    assert waits_for(request, known) == ()
    assert placed(request, known).artifact_sites == ("bergen",)


def test_a_copy_that_differs_is_no_artifact_to_be_taken() -> None:
    known = Handover({MODEL: at("oslo", differs=("bergen",))})
    assert placed(make_request(MODEL), known).artifact_sites == ("oslo",)
    (reason,) = waits_for(make_request(MODEL, sites=("bergen",)), known)
    assert reason.sentence == (
        "waits for artifact model of phase train: it is at oslo, and it may run at bergen"
    )


def test_artifacts_that_are_at_no_site_together_are_waited_for() -> None:
    known = Handover({MODEL: at("oslo"), LOG: at("turin")})
    (reason,) = waits_for(make_request(MODEL, LOG), known)
    assert reason.sentence == (
        "waits for artifact model of phase train: it is at oslo, and others are elsewhere"
    )
    assert reason.short == 1.0


def test_what_takes_nothing_waits_for_nothing_and_stands_anywhere() -> None:
    request = make_request()
    assert waits_for(request, Handover()) == ()
    assert placed(request, Handover()) is request


def test_a_cycle_keeps_back_what_waits_for_artifacts_and_says_so() -> None:
    pending = Pending(make_request(MODEL), handover=Handover())
    assert pending.is_kept_back(NOW)
    assert [each.token for each in gates(pending, NOW)] == [ReasonToken.ARTIFACT_PENDING]
    there = Pending(make_request(MODEL), handover=Handover({MODEL: at("oslo")}))
    assert not there.is_kept_back(NOW)
    assert gates(there, NOW) == ()


# --- Promoted ------------------------------------------------------------------------------------

CHECK = ("check", "matrix")
ALL_PASSED = {"passed": 7, "failed": 0, "error": 0, "not_measured": 0, "not_run": 2}


def matrix(**cells: int) -> Recorded:
    return Recorded("sha256:c", 9, "oslo", {"oslo": "sha256:c"}, cells={**ALL_PASSED, **cells})


def make_promotion(**given: Any) -> Request:
    return make_request(MODEL, promotes=True, **given)


def test_what_is_promoted_waits_until_its_copies_are_where_they_are_wanted() -> None:
    made = at("oslo", differs=("turin",))
    known = Handover({MODEL: replace(made, size_bytes=7_000, copies=("bergen", "oslo", "turin"))})
    (reason,) = waits_for(make_promotion(), known)
    assert reason.token is ReasonToken.ARTIFACT_PENDING
    assert (reason.need, reason.have, reason.short, reason.unit) == (3.0, 1.0, 2.0, "places")
    assert reason.sentence == (
        "promotes only what has its copies: that of artifact model of phase train at bergen is"
        " missing, and 1 more; 1 of 3 places have theirs, 14 kB lag"
    )
    assert reason.evidence["bytes_behind"] == 14_000
    assert [(each["site"], each["found"]) for each in reason.evidence["copies"]] == [
        ("bergen", ""), ("turin", "sha256:b"),
    ]  # fmt: skip
    # What only takes it does not mind.
    assert waits_for(make_request(MODEL), known) == ()


def test_a_copy_that_differs_is_told_as_such() -> None:
    known = Handover({MODEL: replace(at("oslo", differs=("turin",)), copies=("turin",))})
    (reason,) = waits_for(make_promotion(), known)
    assert "at turin differs; 1 of 2 places have theirs, 7 bytes lag" in reason.sentence


def test_what_is_not_made_yet_is_waited_for_before_its_copies() -> None:
    (reason,) = waits_for(make_promotion(), Handover())
    assert reason.sentence == (
        "waits for artifact model of phase train: no machine has measured it yet"
    )


def test_a_promotion_waits_for_the_matrix_that_it_names() -> None:
    request = make_promotion(matrices=(CHECK,))
    (reason,) = waits_for(request, Handover({MODEL: at("oslo")}))
    assert reason.token is ReasonToken.ARTIFACT_PENDING
    assert reason.sentence == (
        "promotes only with artifact matrix of phase check: no machine has measured it yet"
    )
    assert waits_for(request, Handover({MODEL: at("oslo"), CHECK: matrix()})) == ()


@pytest.mark.parametrize(
    ("cells", "said", "numbers"),
    [
        ({"passed": 5, "failed": 2}, "5 of 7 cells passed, 2 failed", (7.0, 5.0)),
        ({"passed": 6, "error": 1}, "6 of 7 cells passed, 1 broke", (7.0, 6.0)),
        (
            {"passed": 6, "not_measured": 1},
            "6 of 7 cells passed, 1 could not be measured",
            (7.0, 6.0),
        ),
        ({"passed": 0}, "none of 2 cells could be run", (1.0, 0.0)),
    ],
)
def test_a_matrix_that_has_not_passed_keeps_back_for_good_in_numbers(
    cells: dict[str, int], said: str, numbers: tuple[float, float]
) -> None:
    known = Handover({MODEL: at("oslo"), CHECK: matrix(**cells)})
    (reason,) = waits_for(make_promotion(matrices=(CHECK,)), known)
    assert reason.token is ReasonToken.DEPENDENCY_NEVER_MET
    assert reason.sentence == (
        "can never begin: promotes only what has passed, and of artifact matrix of phase check"
        f" {said}; cancel it"
    )
    assert (reason.need, reason.have, reason.unit) == (*numbers, "cells")


@given(cells=st.fixed_dictionaries({each: st.integers(0, 2) for each in Verdict}))
def test_a_matrix_passes_just_where_its_own_verdict_is_that_it_has(cells: dict[str, int]) -> None:
    verdicts = [each for each, count in cells.items() for _ in range(count)]
    assert matrix(**cells).has_passed is (verdict_of(map(Verdict, verdicts)) is Verdict.PASSED)


@given(wanted=st.sets(st.sampled_from(SITES)), whole=st.sets(st.sampled_from(SITES), min_size=1))
def test_a_promotion_is_let_through_just_where_no_copy_lags(
    wanted: set[str], whole: set[str]
) -> None:
    known = Handover({MODEL: replace(at(*sorted(whole)), copies=tuple(wanted))})
    reasons = waits_for(make_promotion(), known)
    assert bool(reasons) is bool(wanted - whole)
    assert [each.short for each in reasons] == [len(wanted - whole)] * len(reasons)


@given(
    found=st.lists(st.sets(st.sampled_from(SITES), min_size=1), max_size=3),
    allowed=st.sets(st.sampled_from(SITES)),
    takes=st.integers(0, 4),
)
def test_a_phase_is_let_through_just_where_some_site_of_its_own_has_all(
    found: list[set[str]], allowed: set[str], takes: int
) -> None:
    known = Handover({("p", str(n)): at(*sorted(sites)) for n, sites in enumerate(found)})
    asked = [("p", str(n)) for n in range(takes)]
    request = make_request(*asked, sites=tuple(sorted(allowed)))
    there = set(SITES).intersection(*found[:takes]) if takes <= len(found) else set()
    may_go = not takes or bool(there & (allowed or set(SITES)))
    reasons = waits_for(request, known)
    assert bool(reasons) is not may_go
    assert all(0.0 <= each.have < each.need for each in reasons)
    if may_go and takes:
        assert set(placed(request, known).artifact_sites) == there


@pytest.mark.parametrize("sites", [(), ("oslo",)])
def test_where_a_request_stands_is_part_of_its_shape(sites: tuple[str, ...]) -> None:
    from admission.core.placement.place import shape_of

    request = make_request(MODEL, sites=sites)
    assert shape_of(request) != shape_of(placed(request, Handover({MODEL: at("oslo")})))
