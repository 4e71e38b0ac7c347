"""What people do with objectives. Each is one transaction with its line in the audit log."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from accounts import audit
from accounts.models import User
from admission.slos import document
from admission.slos.models import Slo

__all__ = ["declare", "retire"]


@transaction.atomic
def declare(actor: User | str, text: str) -> Slo:
    """Create the objective that ``text`` names, or change it; events are judged anew then.

    Raises :class:`policies.rules.errors.RuleError`. The same text again changes nothing.
    """
    name = document.read(text).name
    now = timezone.now()
    author = actor if isinstance(actor, str) else actor.get_username()
    slo, is_new = Slo.objects.select_for_update().get_or_create(
        name=name,
        defaults={"text": text, "author": author, "created_at": now, "changed_at": now},
    )
    before = None if is_new else audit.state(slo)
    if is_new or slo.text != text or slo.retired_at is not None:
        if not is_new:
            _change(slo, text, author)
        told = audit.changes(before, audit.state(slo))
        audit.record(actor, "slo.declare", name, version=slo.version, text=text, **told)
    return slo


def _change(slo: Slo, text: str, author: str) -> None:
    slo.text, slo.author, slo.changed_at = text, author, timezone.now()
    slo.version += 1
    slo.judged_at = slo.retired_at = None
    slo.save(update_fields=["text", "author", "changed_at", "version", "judged_at", "retired_at"])
    # What was judged by another text says nothing of this one; events are there to judge again.
    slo.judgments.all().delete()


@transaction.atomic
def retire(actor: User | str, slo: Slo) -> None:
    """Measure an objective no more. What was judged stays for as long as its window."""
    before = audit.stored(slo)
    if Slo.objects.in_use().filter(pk=slo.pk).update(retired_at=timezone.now()):
        audit.record(actor, "slo.retire", slo.name, **audit.changes(before, audit.stored(slo)))
