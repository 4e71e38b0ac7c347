"""The meanings of Xid codes, in short words.

The facts are NVIDIA's (Xid errors, docs.nvidia.com/deploy/xid-errors: the catalog and the
earlier listing); how bad a code is for a fleet is our own judgment. Only codes that are common
on data center GPUs are here; of the others the code and the line of the log have to do.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Q

from telemetry.throttle.rules import Severity

SOURCE = "https://docs.nvidia.com/deploy/xid-errors/"


@dataclass(frozen=True)
class Meaning:
    """The meaning of a code, and the advice to people."""

    title: str
    severity: Severity
    advice: str


_PROGRAM = "look at the program first; at the GPU when several programs meet it there"
_RESET = "drain the node and reset the GPU; when it comes back, have it serviced"

MEANINGS: dict[int, Meaning] = {
    13: Meaning("Exception of the graphics engine", Severity.WARNING, _PROGRAM),
    31: Meaning("Memory page fault", Severity.WARNING, _PROGRAM),
    32: Meaning("Corrupt push buffer", Severity.WARNING, _PROGRAM),
    38: Meaning("Driver firmware error", Severity.CRITICAL, _RESET),
    43: Meaning("A program's channel was stopped", Severity.WARNING, _PROGRAM),
    45: Meaning(
        "Work of a program was removed", Severity.INFO, "it follows another error, or a kill"
    ),
    48: Meaning("Uncorrectable memory error", Severity.CRITICAL, _RESET),
    61: Meaning("Microcontroller breakpoint", Severity.CRITICAL, _RESET),
    62: Meaning("Microcontroller halted", Severity.CRITICAL, _RESET),
    63: Meaning(
        "Memory page retired or row remapped",
        Severity.WARNING,
        "it takes effect with the next reset: plan one",
    ),
    64: Meaning("Page retirement or row remapping failed", Severity.CRITICAL, _RESET),
    68: Meaning("Exception of the video decoder", Severity.WARNING, _PROGRAM),
    69: Meaning("Class error of the graphics engine", Severity.WARNING, _PROGRAM),
    74: Meaning(
        "NVLink error", Severity.CRITICAL, "drain the node; check link errors at both ends"
    ),
    79: Meaning(
        "GPU fell off the bus",
        Severity.CRITICAL,
        "drain the node and restart it; check power, heat and seating of the GPU",
    ),
    92: Meaning(
        "High rate of corrected memory errors", Severity.WARNING, "watch it: it may precede worse"
    ),
    94: Meaning(
        "Memory error, contained",
        Severity.WARNING,
        "the program that met it is lost, others are not; reset the GPU when the node is free",
    ),
    95: Meaning("Memory error, not contained", Severity.CRITICAL, _RESET),
    109: Meaning("Context switch timed out", Severity.CRITICAL, _RESET),
    119: Meaning("GPU system processor does not answer", Severity.CRITICAL, _RESET),
    120: Meaning("GPU system processor error", Severity.CRITICAL, _RESET),
    140: Meaning("Memory error, not recovered", Severity.CRITICAL, _RESET),
    154: Meaning(
        "Recovery action changed", Severity.WARNING, "the line says which: a reset or a restart"
    ),
}
UNKNOWN = Meaning("Xid error", Severity.WARNING, "look it up in NVIDIA's list of Xid errors")


def meaning_of(xid: int) -> Meaning:
    """Return the meaning of ``xid``; UNKNOWN for a code that is not listed."""
    return MEANINGS.get(xid, UNKNOWN)


def condition(severity: Severity) -> Q:
    """Return the condition under which an Xid event is so severe or worse."""
    milder = [xid for xid, meaning in MEANINGS.items() if meaning.severity < severity]
    if severity > UNKNOWN.severity:
        return Q(xid__in=MEANINGS.keys() - set(milder))
    return ~Q(xid__in=milder)
