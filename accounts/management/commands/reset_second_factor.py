"""Remove a user's second factor, where no admin can get in to do it."""

from __future__ import annotations

from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts import audit
from accounts.models import User
from accounts.second_factor import actions


class Command(BaseCommand):
    help = "Removes the second factor of a user, and ends their sessions."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("username")

    def handle(self, *args: object, **options: str) -> None:
        user = User.objects.filter(username=options["username"]).first()
        if user is None:
            raise CommandError(f"There is no user {options['username']}.")
        if not actions.reset(audit.SYSTEM, user):
            raise CommandError(f"{user.username} has no second factor.")
        self.stdout.write(f"The second factor of {user.username} is removed.")
