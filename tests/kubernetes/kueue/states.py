"""What Kueue makes of a workload, one write at a time.

Facts by file of Kueue v0.19.2:

- ``pkg/controller/core/workload_controller.go``: the order of :func:`next_write`.
- ``pkg/workload/admissionchecks.go``: when a workload is admitted, and how long a retry waits.
- ``pkg/workload/evict/evict.go``: what an eviction resets.
- ``pkg/workload/workload.go``: what reserving and giving back quota sets.
- ``pkg/workload/patching/patching.go``: what is written, and who owns it then: Kueue applies the
  states of all checks with force, so whoever writes a check has to force, too.
"""

from __future__ import annotations

import copy
import datetime
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

Document = dict[str, Any]

#: Conditions that Kueue writes along with an admission.
_CONDITIONS = (
    "QuotaReserved",
    "Evicted",
    "Admitted",
    "Preempted",
    "Requeued",
    "DeactivationTarget",
    "Finished",
    "PodsReady",
)
#: The field manager of Kueue's own writes of status.
MANAGER = "kueue-admission"


@dataclass(frozen=True)
class Write:
    """One write of a workload: its status applied, its status replaced, or the rest replaced."""

    how: Literal["apply status", "update status", "update"]
    workload: Document


@dataclass(frozen=True)
class Rules:
    """What is decided outside of a workload."""

    #: names of the checks that its queue wants of it
    checks: frozenset[str] | None
    #: Kueue's documentation says that a retry gives quota back at once. Its source, read by the
    #: letter, does so only when ``requeueAfterSeconds`` are over. Clusters may do either.
    evicts_at_once: bool = True


def text_of(moment: datetime.datetime) -> str:
    return moment.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment_of(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text)


# Reading


def condition(workload: Document, kind: str) -> Document | None:
    conditions = workload.get("status", {}).get("conditions", ())
    return next((found for found in conditions if found["type"] == kind), None)


def holds(workload: Document, kind: str) -> bool:
    """Whether a condition is True."""
    found = condition(workload, kind)
    return found is not None and found["status"] == "True"


def checks(workload: Document) -> list[Document]:
    return list(workload.get("status", {}).get("admissionChecks", ()))


def is_active(workload: Document) -> bool:
    return bool(workload["spec"].get("active", True))


def is_queued(workload: Document, now: datetime.datetime) -> bool:
    """Whether a workload may be given quota now."""
    requeued = condition(workload, "Requeued")
    waits = requeued is not None and requeued["status"] == "False"
    if holds(workload, "Finished") or holds(workload, "QuotaReserved") or waits:
        return False
    if "deletionTimestamp" in workload["metadata"] or not is_active(workload):
        return False
    at = requeue_at(workload)
    return at is None or at <= now


def requeue_at(workload: Document) -> datetime.datetime | None:
    text = workload.get("status", {}).get("requeueState", {}).get("requeueAt")
    return moment_of(text) if text else None


# Changing, in place


def set_condition(
    workload: Document,
    kind: str,
    status: bool,
    reason: str,
    message: str,
    now: datetime.datetime,
) -> bool:
    """Set a condition and return whether anything changed. Its time moves with its status."""
    wanted = {
        "type": kind,
        "status": str(status),
        "reason": reason,
        "message": message,
        "observedGeneration": workload["metadata"].get("generation", 1),
    }
    conditions = workload.setdefault("status", {}).setdefault("conditions", [])
    found = condition(workload, kind)
    if found is None:
        conditions.append({**wanted, "lastTransitionTime": text_of(now)})
        return True
    moved = {} if found["status"] == wanted["status"] else {"lastTransitionTime": text_of(now)}
    before = dict(found)
    found.update(wanted | moved)
    return found != before


def reserve(workload: Document, admission: Document, now: datetime.datetime) -> None:
    """Give a workload quota."""
    queue = admission["clusterQueue"]
    workload.setdefault("status", {})["admission"] = admission
    message = f"Quota reserved in ClusterQueue {queue}"
    set_condition(workload, "QuotaReserved", True, "QuotaReserved", message, now)
    for kind in ("Evicted", "Preempted"):
        before = condition(workload, kind)
        if before is not None and before["status"] == "True":
            message = f"Previously: {before['message']}"
            set_condition(workload, kind, False, "QuotaReserved", message, now)


def give_back(workload: Document, reason: str, message: str, now: datetime.datetime) -> bool:
    """Take quota from a workload. Return whether anything changed."""
    changed = set_condition(workload, "QuotaReserved", False, reason, message, now)
    had = workload["status"].pop("admission", None) is not None
    return sync_admitted(workload, now) or changed or had


def sync_admitted(workload: Document, now: datetime.datetime) -> bool:
    """Admit what has quota and all checks ready, and no other. Return whether that changed."""
    reserved = holds(workload, "QuotaReserved")
    ready = all(check["state"] == "Ready" for check in checks(workload))
    if holds(workload, "Admitted") is (reserved and ready):
        return False
    if reserved and ready:
        reason, message = "Admitted", "The workload is admitted"
    elif not reserved and not ready:
        reason = "NoReservationUnsatisfiedChecks"
        message = "The workload has no reservation and not all checks ready"
    elif not reserved:
        reason, message = "NoReservation", "The workload has no reservation"
    else:
        reason, message = "UnsatisfiedChecks", "The workload has not all checks ready"
    was = condition(workload, "Admitted")
    if was is not None and was["status"] == "True":
        status = workload["status"]
        ran_s = int((now - moment_of(was["lastTransitionTime"])).total_seconds())
        past_s = status.get("accumulatedPastExecutionTimeSeconds", 0)
        status["accumulatedPastExecutionTimeSeconds"] = past_s + ran_s
    return set_condition(workload, "Admitted", reserved and ready, reason, message, now)


def evict(
    workload: Document, reason: str, message: str, now: datetime.datetime, cause: str = ""
) -> None:
    """Mark a workload as evicted, and its checks as pending again."""
    said = f"{reason}DueTo{cause}" if cause else reason
    set_condition(workload, "Evicted", True, said, message, now)
    states = checks(workload)
    for number, check in enumerate(states):
        if check["state"] != "Pending":
            states[number] = _reset(check, now)
    if states:
        workload["status"]["admissionChecks"] = states
    evictions = workload["status"].setdefault("schedulingStats", {}).setdefault("evictions", [])
    for found in evictions:
        if (found["reason"], found["underlyingCause"]) == (reason, cause):
            found["count"] += 1
            return
    evictions.append({"reason": reason, "underlyingCause": cause, "count": 1})


def _reset(check: Document, now: datetime.datetime) -> Document:
    found = {
        "name": check["name"],
        "state": "Pending",
        "message": f"Reset to Pending after eviction. Previously: {check['state']}",
        "lastTransitionTime": text_of(now),
    }
    if "requeueAfterSeconds" in check:
        found["requeueAfterSeconds"] = check["requeueAfterSeconds"]
    if check["state"] == "Retry":
        found["retryCount"] = check.get("retryCount", 0) + 1
    return found


def preempt(workload: Document, message: str, now: datetime.datetime) -> None:
    """Evict a workload for one of higher priority."""
    evict(workload, "Preempted", message, now)
    set_condition(workload, "Preempted", True, "InClusterQueue", message, now)


def finish(workload: Document, reason: str, message: str, now: datetime.datetime) -> None:
    set_condition(workload, "Finished", True, reason, message, now)


def clear_admission(workload: Document, now: datetime.datetime) -> None:
    """Give back the quota of an evicted workload whose pods are gone."""
    evicted = condition(workload, "Evicted")
    assert evicted is not None
    reason, message = evicted["reason"], evicted["message"]
    set_condition(workload, "Requeued", reason == "Preempted", reason, message, now)
    give_back(workload, "Pending", message, now)


# Deciding


def next_write(workload: Document, rules: Rules, now: datetime.datetime) -> Write | None:
    """Return what Kueue's controller of workloads writes next, None where it has nothing to do."""
    if holds(workload, "Finished"):
        return None
    wanted = copy.deepcopy(workload)
    if _postpone(wanted, now):
        return Write("apply status", wanted)
    if is_active(workload):
        found = _of_active(wanted, rules, now)
        if found is not None or _is_waiting(wanted, rules, now):
            return found
    elif not holds(workload, "Evicted"):
        _deactivate(wanted, now)
        return Write("apply status", wanted)
    if rules.checks is not None and _sync_checks(wanted, rules.checks, now):
        return Write("update status", wanted)
    if not holds(workload, "Admitted") and sync_admitted(wanted, now):
        return Write("apply status", wanted)
    return _of_checks(wanted, now)


def _postpone(workload: Document, now: datetime.datetime) -> bool:
    """Set when a workload is queued again: the latest moment that a retry asks for."""
    moments = [
        moment_of(check["lastTransitionTime"])
        + datetime.timedelta(seconds=check["requeueAfterSeconds"])
        for check in checks(workload)
        if check["state"] == "Retry" and "requeueAfterSeconds" in check
    ]
    latest = max(moments, default=now)
    current = requeue_at(workload)
    if latest <= now or (current is not None and current >= latest):
        return False
    workload["status"].setdefault("requeueState", {})["requeueAt"] = text_of(latest)
    return True


def _is_waiting(workload: Document, rules: Rules, now: datetime.datetime) -> bool:
    at = requeue_at(workload)
    if at is None or at <= now:
        return False
    return not (rules.evicts_at_once and holds(workload, "QuotaReserved"))


def _of_active(workload: Document, rules: Rules, now: datetime.datetime) -> Write | None:
    if holds(workload, "DeactivationTarget"):
        workload["spec"]["active"] = False
        return Write("update", workload)
    if _is_waiting(workload, rules, now):
        return None
    at = requeue_at(workload)
    if at is not None and at <= now and not holds(workload, "QuotaReserved"):
        del workload["status"]["requeueState"]["requeueAt"]
        return Write("apply status", workload)
    requeued = condition(workload, "Requeued")
    if requeued is None or requeued["status"] == "True" or holds(workload, "QuotaReserved"):
        return None
    if requeued["reason"].startswith("Deactivated"):
        reason, message = "Reactivated", "The workload was reactivated"
    else:
        reason, message = "BackoffFinished", "The workload backoff was finished"
    set_condition(workload, "Requeued", True, reason, message, now)
    return Write("apply status", workload)


def _deactivate(workload: Document, now: datetime.datetime) -> None:
    target = condition(workload, "DeactivationTarget")
    message = "The workload is deactivated"
    cause = ""
    if target is not None:
        message, cause = f"{message} due to {target['message']}", target["reason"]
        conditions = workload["status"]["conditions"]
        conditions.remove(target)
    workload.setdefault("status", {}).pop("requeueState", None)
    evict(workload, "Deactivated", message, now, cause)


def _sync_checks(workload: Document, names: Iterable[str], now: datetime.datetime) -> bool:
    """Give a workload a state for each check that its queue wants, and no others."""
    found = {check["name"]: check for check in checks(workload)}
    wanted = {
        name: found.get(
            name,
            {
                "name": name,
                "state": "Pending",
                "message": "",
                "lastTransitionTime": text_of(now),
            },
        )
        for name in sorted(names)
    }
    if wanted.keys() == found.keys():
        return False
    workload.setdefault("status", {})["admissionChecks"] = list(wanted.values())
    return True


def _of_checks(workload: Document, now: datetime.datetime) -> Write | None:
    if not holds(workload, "QuotaReserved") or holds(workload, "Evicted"):
        return None
    rejected = [check for check in checks(workload) if check["state"] == "Rejected"]
    retried = [check for check in checks(workload) if check["state"] == "Retry"]
    if rejected:
        message = _said(rejected, "Rejected")
        if not set_condition(workload, "DeactivationTarget", True, "AdmissionCheck", message, now):
            return None
        return Write("apply status", workload)
    if retried:
        message = f"Evicted due to {_said(retried, 'Retry')}"
        evict(workload, "AdmissionCheck", message, now)
        return Write("apply status", workload)
    return None


def _said(found: list[Document], state: str) -> str:
    parts = [
        f'"{check["name"]}" ({check["message"]})' if check["message"] else f'"{check["name"]}"'
        for check in sorted(found, key=lambda check: str(check["name"]))
    ]
    noun = "AdmissionChecks" if len(found) > 1 else "AdmissionCheck"
    return f"{noun} in {state} state: {'; '.join(parts)}"


def applied(workload: Document) -> Document:
    """Return what Kueue applies of a workload's status, of this version and no other."""
    metadata = workload["metadata"]
    status = workload.get("status", {})
    names = (
        "admission",
        "admissionChecks",
        "requeueState",
        "accumulatedPastExecutionTimeSeconds",
        "schedulingStats",
    )
    found: Document = {name: status[name] for name in names if status.get(name)}
    if "admissionChecks" in found:
        found["admissionChecks"] = [_applied_check(check) for check in found["admissionChecks"]]
    found["conditions"] = [
        condition for condition in status.get("conditions", ()) if condition["type"] in _CONDITIONS
    ]
    return {
        "apiVersion": workload["apiVersion"],
        "kind": workload["kind"],
        "metadata": {key: metadata[key] for key in ("name", "namespace", "uid", "resourceVersion")},
        "status": found,
    }


def _applied_check(check: Document) -> Document:
    return {name: value for name, value in check.items() if value not in ([], None)}
