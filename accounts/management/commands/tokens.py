"""``manage.py tokens``: list, make and end API tokens of users, from a shell."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from accounts import actions, audit
from accounts.models import ApiToken, User
from accounts.roles import Capability


class Command(BaseCommand):
    help = "List API tokens, make one, or end them. What is done is noted as done by system."

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions_ = parser.add_subparsers(dest="action", required=True)
        show = actions_.add_parser("list", help="tokens that work, with their last use")
        show.add_argument("--user")
        make = actions_.add_parser("create", help="print a new token, this once")
        make.add_argument("user")
        make.add_argument("name")
        make.add_argument("--days", type=int, help="until it ends")
        make.add_argument(
            "--scope",
            action="append",
            choices=[each.value for each in Capability],
            help="what it is for; may be given again. Default: all that its user may",
        )
        end = actions_.add_parser("revoke", help="end one token by its number, or all of a user")
        end.add_argument("id", type=int, nargs="?")
        end.add_argument("--user")

    def handle(self, *args: Any, **options: Any) -> None:
        act = {"list": self._list, "create": self._create, "revoke": self._revoke}
        act[options["action"]](options)

    def _list(self, options: dict[str, Any]) -> None:
        found = ApiToken.objects.usable().select_related("user").order_by("pk")
        for token in found.filter(user=_user(options["user"])) if options["user"] else found:
            ends = f"{token.expires_at:%Y-%m-%d}" if token.expires_at else "never"
            used = f"{token.last_used_at:%Y-%m-%d %H:%M}" if token.last_used_at else "never"
            scope = ", ".join(token.phrases) or "all that its user may"
            self.stdout.write(
                f"{token.pk}  {token.user.username}  {token.name}  {token.hint}…  "
                f"ends {ends}  used {used}  for {scope}"
            )

    def _create(self, options: dict[str, Any]) -> None:
        scope = options["scope"]
        try:
            _, secret = actions.create_token(
                audit.SYSTEM,
                _user(options["user"]),
                options["name"],
                expires_at=actions.token_end(options["days"]),
                scope=None if scope is None else [Capability(each) for each in scope],
            )
        except actions.TokenRefused as error:
            raise CommandError(f"--{error.field}: {error}") from error
        self.stdout.write(secret)

    def _revoke(self, options: dict[str, Any]) -> None:
        if (options["id"] is None) == (options["user"] is None):
            raise CommandError("give the number of a token, or --user NAME for all of somebody's")
        found = ApiToken.objects.usable().select_related("user")
        one = found.filter(pk=options["id"])
        tokens = found.filter(user=_user(options["user"])) if options["user"] else one
        ended = sum(actions.revoke_token(audit.SYSTEM, token) for token in tokens)
        if not ended and options["id"] is not None:
            raise CommandError(f"there is no token {options['id']} that works")
        self.stdout.write(f"{ended} tokens are revoked.")


def _user(name: str) -> User:
    user = User.objects.filter(username=name).first()
    if user is None:
        raise CommandError(f"there is no user {name!r}")
    return user
