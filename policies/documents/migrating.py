"""Constraints shared by migrations of all kinds, and the trigger that keeps texts unchanged.

Released migrations use these, so they are added to and never changed.
"""

from __future__ import annotations

from django.db import migrations, models
from django.db.models import CheckConstraint, Q, UniqueConstraint

__all__ = ["NEVER_CHANGES", "constraints", "never_changes"]

#: Creates the function that the triggers of all kinds call.
NEVER_CHANGES = migrations.RunSQL(
    """
    CREATE FUNCTION documents_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'version % of % never changes: make a new one', OLD.number, OLD.name
            USING ERRCODE = 'restrict_violation';
    END $$;
    """,
    "DROP FUNCTION documents_refuse()",
)


def never_changes(table: str) -> migrations.RunSQL:
    """Return the operation that keeps the versions in ``table`` as they are."""
    return migrations.RunSQL(
        f"""
        CREATE TRIGGER document_version_never_changes
        BEFORE UPDATE ON {table} FOR EACH ROW
        WHEN (
            (OLD.name, OLD.number, OLD.text, OLD.author, OLD.created_at)
            IS DISTINCT FROM (NEW.name, NEW.number, NEW.text, NEW.author, NEW.created_at)
            OR (OLD.state = 'retired' AND NEW.state <> 'retired')
        )
        EXECUTE FUNCTION documents_refuse();
        """,
        f"DROP TRIGGER document_version_never_changes ON {table}",
    )


def constraints(model: str) -> list[migrations.AddConstraint]:
    """Return the operations that add the constraints common to versions of every kind."""
    counts = Q(state__in=["canary", "active"])
    share = Q(state="canary", share__gt=0, share__lt=1)
    found = [
        UniqueConstraint(fields=["name", "number"], name=f"{model}_number"),
        UniqueConstraint(fields=["name"], condition=Q(state="active"), name=f"{model}_one_active"),
        UniqueConstraint(fields=["name"], condition=Q(state="canary"), name=f"{model}_one_canary"),
        CheckConstraint(
            condition=~Q(reviewer=models.F("author")), name=f"{model}_reviewer_is_another"
        ),
        CheckConstraint(condition=~counts | ~Q(reviewer=""), name=f"{model}_counts_when_reviewed"),
        CheckConstraint(
            condition=share | (~Q(state="canary") & Q(share__isnull=True)),
            name=f"{model}_share_of_canaries",
        ),
    ]
    return [migrations.AddConstraint(model_name=model, constraint=each) for each in found]
