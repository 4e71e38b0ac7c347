"""Who is given quota: queues, flavors and preemption, as Kueue's scheduler decides them.

Facts by file of Kueue v0.19.2: ``pkg/scheduler/scheduler.go``, ``pkg/scheduler/flavorassigner`` and
``pkg/cache/scheduler/clusterqueue.go``. Cohorts, borrowing and topology are not played.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from tests.kubernetes.kueue import states

Document = dict[str, Any]
#: Amounts by flavor and resource.
Usage = dict[tuple[str, str], Fraction]

_UNITS = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    **{unit: Fraction(1000) ** (power + 1) for power, unit in enumerate("kMGTPE")},
    **{f"{unit}i": Fraction(1024) ** (power + 1) for power, unit in enumerate("KMGTPE")},
}


def amount(quantity: object) -> Fraction:
    """Read a quantity: ``8``, ``500m``, ``2Gi``."""
    text = str(quantity)
    digits = text.rstrip("numkKMGTPEi")
    return Fraction(digits) * _UNITS[text[len(digits) :]]


def quantity(value: Fraction) -> str:
    """Write an amount: whole, or in thousandths."""
    return str(value) if value.denominator == 1 else f"{int(value * 1000)}m"


def inactive_reason(queue: Document, checks: Mapping[str, Document], flavors: set[str]) -> str:
    """Return why a ClusterQueue admits nothing, "" where it is active."""
    if queue["spec"].get("stopPolicy", "None") != "None":
        return "Stopped"
    if any(flavor["name"] not in flavors for flavor in _flavors(queue)):
        return "FlavorNotFound"
    for name in check_names(queue):
        if name not in checks:
            return "AdmissionCheckNotFound"
        if not states.holds(checks[name], "Active"):
            return "AdmissionCheckInactive"
    return ""


def _flavors(queue: Document) -> Iterable[Document]:
    return (
        flavor for group in queue["spec"].get("resourceGroups", ()) for flavor in group["flavors"]
    )


def check_names(queue: Document) -> list[str]:
    strategy = queue["spec"].get("admissionChecksStrategy", {})
    return [check["name"] for check in strategy.get("admissionChecks", ())]


def checks_for(workload: Document, queue: Document) -> frozenset[str]:
    """Return the checks that a queue wants of a workload.

    Those of all flavors are wanted before there is quota, those of some once flavors are assigned.
    """
    strategy = queue["spec"].get("admissionChecksStrategy", {})
    admission = workload.get("status", {}).get("admission")
    assigned = {
        flavor
        for assignment in (admission or {}).get("podSetAssignments", ())
        for flavor in assignment.get("flavors", {}).values()
    }
    every = {flavor["name"] for flavor in _flavors(queue)}
    return frozenset(
        check["name"]
        for check in strategy.get("admissionChecks", ())
        if _applies(set(check.get("onFlavors", ())) or every, assigned, every)
    )


def _applies(on: set[str], assigned: set[str], every: set[str]) -> bool:
    return bool(on & assigned) if assigned else on >= every


def requests(workload: Document) -> list[tuple[str, int, dict[str, Fraction]]]:
    """Return (pod set, pods, amounts of all its pods) for each pod set."""
    found = []
    for pod_set in workload["spec"]["podSets"]:
        total: dict[str, Fraction] = defaultdict(Fraction)
        for container in pod_set["template"].get("spec", {}).get("containers", ()):
            resources = container.get("resources", {})
            asked = {**resources.get("limits", {}), **resources.get("requests", {})}
            for name, value in asked.items():
                total[name] += amount(value) * pod_set["count"]
        found.append((pod_set["name"], pod_set["count"], dict(total)))
    return found


@dataclass
class Capacity:
    """The quota of a ClusterQueue, and what is taken of it."""

    queue: Document
    nominal: Usage = field(default_factory=dict)
    used: Usage = field(default_factory=lambda: defaultdict(Fraction))

    @classmethod
    def of(cls, queue: Document, holders: Iterable[Document]) -> Capacity:
        found = cls(queue)
        for flavor in _flavors(queue):
            for resource in flavor["resources"]:
                key = (flavor["name"], resource["name"])
                found.nominal[key] = amount(resource["nominalQuota"])
        for holder in holders:
            found.take(holder["status"]["admission"])
        return found

    def take(self, admission: Document, sign: int = 1) -> None:
        """Count an admission, or with -1 count it no more."""
        for assignment in admission["podSetAssignments"]:
            for resource, flavor in assignment.get("flavors", {}).items():
                taken = amount(assignment["resourceUsage"][resource])
                self.used[(flavor, resource)] += sign * taken

    def assign(self, workload: Document) -> tuple[Document | None, str]:
        """Return the admission that fits a workload, or None and why there is none."""
        assignments = []
        planned: Usage = defaultdict(Fraction)
        for name, count, total in requests(workload):
            flavors, why = self._flavors_for(total, planned)
            if why:
                return None, f"couldn't assign flavors to pod set {name}: {why}"
            for resource, flavor in flavors.items():
                planned[(flavor, resource)] += total[resource]
            usage = {resource: quantity(total[resource]) for resource in flavors}
            assignments.append(
                {"name": name, "count": count, "flavors": flavors, "resourceUsage": usage}
            )
        admission = {
            "clusterQueue": self.queue["metadata"]["name"],
            "podSetAssignments": assignments,
        }
        return admission, ""

    def _flavors_for(
        self, total: Mapping[str, Fraction], planned: Usage
    ) -> tuple[dict[str, str], str]:
        found: dict[str, str] = {}
        for group in self.queue["spec"].get("resourceGroups", ()):
            asked = {name: v for name, v in total.items() if name in group["coveredResources"]}
            why = [self._short(flavor["name"], asked, planned) for flavor in group["flavors"]]
            if "" not in why:
                return {}, ", ".join(why)
            flavor = group["flavors"][why.index("")]["name"]
            found |= dict.fromkeys(asked, flavor)
        missing = sorted(set(total) - set(found))
        return found, f"resource {missing[0]} unavailable in ClusterQueue" if missing else ""

    def _short(self, flavor: str, asked: Mapping[str, Fraction], planned: Usage) -> str:
        for name, value in asked.items():
            key = (flavor, name)
            free = self.nominal.get(key, Fraction(0)) - self.used[key] - planned[key]
            if value > free:
                more = quantity(value - free)
                return (
                    f"insufficient unused quota for {name} in flavor {flavor}, {more} more needed"
                )
        return ""


@dataclass(frozen=True)
class Decision:
    """What the scheduler does with one workload: quota, eviction for another, or a reason."""

    workload: Document
    admission: Document | None = None
    preempted_for: str = ""
    waits_for: str = ""


#: Kueue tries one workload after the other. Of those that wait the first so many are tried in a
#: round; what is said of the others is as old as their last turn.
_HEADS = 200


def decide(
    queue: Document, workloads: Iterable[Document], now: datetime.datetime
) -> list[Decision]:
    """Return what one round of the scheduler does with the workloads of one active queue."""
    every = list(workloads)
    holders = [w for w in every if w.get("status", {}).get("admission") and not _is_done(w)]
    waiting = sorted((w for w in every if states.is_queued(w, now)), key=_order)
    capacity = Capacity.of(queue, holders)
    is_strict = queue["spec"].get("queueingStrategy") == "StrictFIFO"
    decisions = []
    for workload in waiting[:_HEADS]:
        admission, why = capacity.assign(workload)
        if admission is not None:
            capacity.take(admission)
            decisions.append(Decision(workload, admission=admission))
            continue
        victims = _victims(queue, workload, holders, capacity)
        decisions += [Decision(victim, preempted_for=_uid(workload)) for victim in victims]
        decisions.append(Decision(workload, waits_for=why))
        if is_strict or victims:
            break
    return decisions


def _is_done(workload: Document) -> bool:
    return states.holds(workload, "Finished")


def _uid(workload: Document) -> str:
    return str(workload["metadata"]["uid"])


def _order(workload: Document) -> tuple[int, str, str]:
    """Order a queue: by priority, then by when it was queued, for evicted ones again."""
    evicted = states.condition(workload, "Evicted")
    since = workload["metadata"]["creationTimestamp"]
    if evicted is not None and evicted["status"] == "True":
        since = evicted["lastTransitionTime"]
    name = workload["metadata"]["name"]
    return -workload["spec"].get("priority", 0), since, name


def _victims(
    queue: Document, workload: Document, holders: list[Document], capacity: Capacity
) -> list[Document]:
    """Return whom to evict so that a workload fits: the least and youngest first, or nobody."""
    policy = queue["spec"].get("preemption", {}).get("withinClusterQueue", "Never")
    if policy == "Never" or any(states.holds(holder, "Evicted") for holder in holders):
        return []
    priority = workload["spec"].get("priority", 0)
    lower = [h for h in holders if h["spec"].get("priority", 0) < priority]
    lower.sort(key=lambda h: (h["spec"].get("priority", 0), h["metadata"]["uid"]))
    lower.sort(key=lambda h: str(_reserved_at(h)), reverse=True)
    lower.sort(key=lambda h: int(h["spec"].get("priority", 0)))
    chosen: list[Document] = []
    trial = Capacity(queue, capacity.nominal, defaultdict(Fraction, capacity.used))
    for holder in lower:
        trial.take(holder["status"]["admission"], -1)
        chosen.append(holder)
        if trial.assign(workload)[0] is not None:
            return chosen
    return []


def _reserved_at(workload: Document) -> str:
    found = states.condition(workload, "QuotaReserved")
    return str(found["lastTransitionTime"]) if found else ""
