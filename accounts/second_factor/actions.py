"""Turning a second factor on and off, and checking its codes; each with its audit entry."""

from __future__ import annotations

import enum
from datetime import datetime, timedelta

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import F

from accounts import audit
from accounts.models import User
from accounts.second_factor import codes, secret
from accounts.second_factor.models import Authenticator, RecoveryCode
from accounts.sessions import actions as sessions

log = structlog.get_logger(__name__)


class Verdict(enum.Enum):
    """The result of checking a code."""

    RIGHT = "right"
    WRONG = "wrong"
    LOCKED = "locked"


def is_on(user: User) -> bool:
    """Say whether ``user`` has a second factor."""
    return Authenticator.objects.filter(user=user).exists()


def is_required(user: User) -> bool:
    """Say whether the role of ``user`` requires one."""
    return user.role in settings.SECOND_FACTOR_ROLES


@transaction.atomic
def turn_on(user: User, new_secret: str, typed: str, now: datetime) -> list[str] | None:
    """Store a secret, which ``typed`` proves to be in the app. Return recovery codes, shown once.

    Return None where the code is wrong, or another window was faster.
    """
    timecode = codes.timecode_of(new_secret, codes.tidy(typed), now.timestamp())
    if timecode is None:
        return None
    _, made = Authenticator.objects.get_or_create(
        user=user, defaults={"secret": secret.sealed(new_secret), "last_timecode": timecode}
    )
    if not made:
        return None
    audit.record(user, "second_factor.on", user.username)
    return _new_recovery_codes(user)


@transaction.atomic
def renew_recovery_codes(user: User) -> list[str]:
    """Return new recovery codes, shown once. The old ones are worth nothing then."""
    audit.record(user, "second_factor.codes", user.username)
    return _new_recovery_codes(user)


@transaction.atomic
def turn_off(actor: User | str, user: User, *, action: str = "second_factor.off") -> bool:
    """Remove the second factor of ``user``. Return False where there was none."""
    removed, _ = Authenticator.objects.filter(user=user).delete()
    RecoveryCode.objects.filter(user=user).delete()
    if removed:
        audit.record(actor, action, user.username)
    return bool(removed)


@transaction.atomic
def reset(actor: User | str, user: User) -> bool:
    """Remove the lost second factor of a user, and end the user's sessions."""
    done = turn_off(actor, user, action="second_factor.reset")
    if done:
        sessions.end_all(actor, user, why="second_factor")
    return done


@transaction.atomic
def check(user: User, typed: str, now: datetime) -> Verdict:
    """Check a code, and use it up. A right one is worth nothing a second time.

    Wrong codes of the app lock it for a while. Codes for recovery are too long to be guessed and
    go on working: somebody who knows the password cannot keep its owner out by wrong codes.
    """
    code = codes.tidy(typed)
    authenticator = Authenticator.objects.select_for_update().filter(user=user).first()
    if authenticator is None:
        return Verdict.WRONG
    if codes.is_recovery_code(code) and _use_recovery_code(user, code):
        return Verdict.RIGHT
    if _is_locked(authenticator, now):
        return Verdict.LOCKED
    timecode = _timecode(authenticator, code, now)
    if timecode is None or timecode <= authenticator.last_timecode:
        return _count_failure(authenticator, now)
    Authenticator.objects.filter(pk=authenticator.pk).update(last_timecode=timecode, failures=0)
    return Verdict.RIGHT


def _use_recovery_code(user: User, code: str) -> bool:
    used, _ = RecoveryCode.objects.filter(user=user, digest=codes.digest(code)).delete()
    if used:
        left = RecoveryCode.objects.filter(user=user).count()
        audit.record(user, "second_factor.recovery", user.username, left=left)
    return bool(used)


def _timecode(authenticator: Authenticator, code: str, now: datetime) -> int | None:
    try:
        kept = secret.opened(authenticator.secret)
    except secret.InvalidToken:
        log.error("second_factor.unreadable", user=authenticator.user_id, hint="SECRET_KEY is new")
        return None
    return codes.timecode_of(kept, code, now.timestamp())


def _is_locked(authenticator: Authenticator, now: datetime) -> bool:
    failed_at = authenticator.failed_at
    return (
        failed_at is not None
        and authenticator.failures >= settings.AXES_FAILURE_LIMIT
        and now - failed_at < _cool_off()
    )


def _count_failure(authenticator: Authenticator, now: datetime) -> Verdict:
    failed_at = authenticator.failed_at
    goes_on = failed_at is not None and now - failed_at < _cool_off()
    failures = F("failures") + 1 if goes_on else 1
    Authenticator.objects.filter(pk=authenticator.pk).update(failures=failures, failed_at=now)
    authenticator.refresh_from_db(fields=["failures", "failed_at"])
    locked = _is_locked(authenticator, now)
    action = "second_factor.locked" if locked else "second_factor.failed"
    audit.record(authenticator.user, action, authenticator.user.username)
    return Verdict.LOCKED if locked else Verdict.WRONG


def _cool_off() -> timedelta:
    return timedelta(hours=settings.AXES_COOLOFF_TIME)


def _new_recovery_codes(user: User) -> list[str]:
    made = codes.make_recovery_codes()
    RecoveryCode.objects.filter(user=user).delete()
    RecoveryCode.objects.bulk_create(
        RecoveryCode(user=user, digest=codes.digest(each)) for each in made
    )
    return made
