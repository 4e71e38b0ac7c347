"""Settings in the audit log, at a start that finds others than the last one did."""

from __future__ import annotations

import pytest

from accounts.models import AuditEntry
from config import settings as module
from config import settings_audit

pytestmark = pytest.mark.django_db


def test_a_start_notes_what_is_set_otherwise_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert settings_audit.note()
    assert not settings_audit.note()
    monkeypatch.setattr(module, "STALE_AFTER_S", 12.5)
    monkeypatch.setattr(module, "METRICS_TOKEN", "hunter2")
    assert settings_audit.note()
    first, second = AuditEntry.objects.filter(action="settings.change").order_by("id")
    before, after = second.detail["before"], second.detail["after"]
    assert before["STALE_AFTER_S"] == first.detail["settings"]["STALE_AFTER_S"]
    assert after["STALE_AFTER_S"] == 12.5
    assert set(after) == {"STALE_AFTER_S", "METRICS_TOKEN"}


def test_no_secret_is_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SECRET_KEY", "DATABASE_URL", "REDIS_URL", "METRICS_TOKEN", "EMAIL_HOST_PASSWORD"):
        monkeypatch.setattr(module, name, "postgresql://hunter2")
    settings_audit.note()
    told = AuditEntry.objects.get(action="settings.change").detail["settings"]
    assert "hunter2" not in str(told)
    assert told["SECRET_KEY"].startswith("(secret ")
