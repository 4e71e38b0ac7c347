"""``manage.py migrate``, as the owner of the schema."""

from __future__ import annotations

from typing import Any

from django.core.management.commands import migrate

from config import ownership


class Command(migrate.Command):
    def handle(self, *args: Any, **options: Any) -> None:
        """Migrate, and give the application's role its rights on new tables."""
        with ownership.as_owner():
            super().handle(*args, **options)
            ownership.grant()
