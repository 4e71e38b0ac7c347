"""Django inside the benchmark's own process, on the servers of a stack.

``python -m bench.django_in operator_token session_cookie`` prints credentials for tests, which
cannot have a second Django in their process.
"""

from __future__ import annotations

# Django is imported in functions: settings are read once, after a stack has told its own.
import os
import sys

from bench.stack import Stack


def set_up(stack: Stack) -> None:
    """Point this process at ``stack``. Once in a process: settings are read once."""
    os.environ.update(stack.environment)
    os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
    import django

    django.setup()


def set_up_alone() -> None:
    """Set Django up in this process for code that asks no server for anything. Once."""
    nowhere = {"DATABASE_URL": "postgresql://nobody@localhost/nothing", "SECRET_KEY": "bench"}
    os.environ |= {**nowhere, "REDIS_URL": "redis://localhost:1"} | os.environ
    os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
    import django

    django.setup()


def session_cookie(username: str = "bench") -> str:
    """Return the session cookie of a viewer who is logged in."""
    from django.conf import settings
    from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY

    from accounts.models import User
    from accounts.sessions.store import SessionStore

    user, _ = User.objects.get_or_create(username=username, defaults={"role": "viewer"})
    session = SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[-1]
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.save()
    return f"sessionid={session.session_key}"


def operator_token() -> str:
    """Return an API token that may change the fleet."""
    from accounts.models import ApiToken, User

    user, _ = User.objects.get_or_create(username="bench-operator", defaults={"role": "operator"})
    return ApiToken.issue(user, "bench")[1]


def without_controller() -> str:
    """Have the controller of running load be off, by a policy; return the policy's name."""
    return _policy("without-controller", "controller: off")


def leaving_unmanaged_alone() -> str:
    """Have load of no known owner be left alone, by a policy; return the policy's name."""
    return _policy("leaving-unmanaged-alone", "unmanaged: {capped: false}")


def _policy(name: str, line: str) -> str:
    from admission.policy.models import AdmissionPolicyVersion
    from policies.documents import builtin

    text = f"name: {name}\n{line}\n"
    builtin.load(AdmissionPolicyVersion, {name: text}, "admission.policy.catalog.POLICIES")
    return name


_MADE = {
    "operator_token": operator_token,
    "session_cookie": session_cookie,
    "without_controller": without_controller,
    "leaving_unmanaged_alone": leaving_unmanaged_alone,
}

if __name__ == "__main__":
    os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
    import django

    django.setup()
    for kind in sys.argv[1:]:
        print(_MADE[kind]())
