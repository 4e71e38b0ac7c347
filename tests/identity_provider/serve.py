"""Serves OpenID Connect on a port of loopback: ``python serve.py PORT FOLDER BACK``.

The provider is django-oauth-toolkit as it comes: code, PKCE, keys and tokens are its own. Added are
people, who are told to ``/control``, and on demand a fault in their next ID tokens.
"""

from __future__ import annotations

import base64
import json
import socketserver
import sys
import time
import wsgiref.simple_server
from pathlib import Path
from typing import Any

import django
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from django.conf import settings
from django.core.management import call_command
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt

CLIENT_ID, CLIENT_SECRET = "headroom", "a secret of the client"
PASSWORD = "a password at the provider"

#: what /control has told of each: sub, groups, claims, fault
PEOPLE: dict[str, dict[str, Any]] = {}

LOGIN_PAGE = """<!doctype html><title>Provider</title><form method="post">{% csrf_token %}
<label>Name <input name="username"></label>
<label>Word <input name="password" type="password"></label>
<input type="hidden" name="next" value="{{ next }}"><button>Sign in</button></form>"""


def new_key() -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()


def configure(folder: Path) -> None:
    settings.configure(
        SECRET_KEY="x" * 50,
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF=__name__,
        USE_TZ=True,
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        LOGIN_URL="/accounts/login/",
        SESSION_COOKIE_NAME="provider_session",
        CSRF_COOKIE_NAME="provider_csrf",
        PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
        DATABASES={
            "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": folder / "provider.sqlite3"}
        },
        INSTALLED_APPS=[
            "django.contrib.auth",
            "django.contrib.contenttypes",
            "django.contrib.sessions",
            "oauth2_provider",
        ],
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.middleware.csrf.CsrfViewMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
        ],
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "OPTIONS": {
                    "loaders": [
                        (
                            "django.template.loaders.locmem.Loader",
                            {"registration/login.html": LOGIN_PAGE},
                        ),
                        "django.template.loaders.app_directories.Loader",
                    ],
                    "context_processors": ["django.template.context_processors.request"],
                },
            }
        ],
        OAUTH2_PROVIDER={
            "OIDC_ENABLED": True,
            "OIDC_RSA_PRIVATE_KEY": new_key(),
            "OIDC_RP_INITIATED_LOGOUT_ENABLED": True,
            "PKCE_REQUIRED": True,
            "SCOPES": {"openid": "who", "profile": "names", "email": "address"},
            "OAUTH2_VALIDATOR_CLASS": f"{__name__}.Validator",
        },
    )


def tampered(token: str, fault: str, key: Any) -> str:
    """Return an ID token as somebody would send it who is not, or no longer, to be believed."""
    from jwcrypto import jwk, jwt

    header, payload = (json.loads(_decoded(part)) for part in token.split(".")[:2])
    now = int(time.time())
    changes: dict[str, dict[str, Any]] = {
        "issuer": {"iss": "https://evil.example"},
        "audience": {"aud": "another-client"},
        "audiences": {"aud": ["headroom", "another-client"]},
        "nonce": {"nonce": "another nonce"},
        "expired": {"iat": now - 3600, "exp": now - 600},
        "late": {"iat": now - 600, "exp": now - 30},
        "future": {"iat": now + 600, "exp": now + 3600},
        "ahead": {"iat": now + 30},
        "at_hash": {"at_hash": "bm90IHRoZSBoYXNo"},
    }
    claims = {**payload, **changes.get(fault, {})}
    for gone in ("nonce", "sub", "exp"):
        if fault == f"no_{gone}":
            del claims[gone]
    if fault == "none":
        return ".".join([_encoded({**header, "alg": "none"}), _encoded(claims), ""])
    if fault == "hmac":
        # The public key as the secret: the trick that mixes two kinds of signature up.
        header, key = {"alg": "HS256"}, jwk.JWK(kty="oct", k=_encoded(key.export_public()))
    if fault in ("other_key", "unknown_key"):
        key = jwk.JWK.generate(kty="RSA", size=2048)
        header = {**header, "kid": "nobody's"} if fault == "unknown_key" else header
    signed = jwt.JWT(header=header, claims=claims)
    signed.make_signed_token(key)
    return str(signed.serialize())


def _decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def _encoded(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


@csrf_exempt
def control(request: HttpRequest) -> HttpResponse:
    """Take what a person is from now on: ``{name, sub, groups, claims, fault}``."""
    from django.contrib.auth.models import User

    told = json.loads(request.body)
    if not User.objects.filter(username=told["name"]).exists():
        User.objects.create_user(told["name"], password=PASSWORD)
    PEOPLE[told["name"]] = told
    return HttpResponse("ok")


def main() -> None:
    port, folder, back = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    configure(folder)
    django.setup()
    define()
    call_command("migrate", verbosity=0)
    from oauth2_provider.models import Application

    Application.objects.create(
        client_id=CLIENT_ID,
        client_secret=CLIENT_SECRET,
        client_type="confidential",
        authorization_grant_type="authorization-code",
        algorithm="RS256",
        redirect_uris=back,
        post_logout_redirect_uris=back,
        skip_authorization=True,
    )
    from django.core.wsgi import get_wsgi_application

    with wsgiref.simple_server.make_server(
        "127.0.0.1", port, get_wsgi_application(), ThreadingServer, Quiet
    ) as server:
        server.serve_forever()


class ThreadingServer(socketserver.ThreadingMixIn, wsgiref.simple_server.WSGIServer):
    daemon_threads = True


class Quiet(wsgiref.simple_server.WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


def define() -> None:
    """Make what can be made only once Django is set up."""
    from django.contrib.auth.views import LoginView
    from django.urls import include, path
    from oauth2_provider.oauth2_validators import OAuth2Validator

    class Validator(OAuth2Validator):  # type: ignore[misc]
        oidc_claim_scope = None

        def get_additional_claims(self, request: Any) -> dict[str, Any]:
            told = PEOPLE[request.user.username]
            claims = {"preferred_username": told["name"], "groups": told["groups"]}
            if told.get("groups_at_userinfo") and not request.uri.endswith("/userinfo/"):
                del claims["groups"]
            return {"sub": told.get("sub") or told["name"], **claims, **told.get("claims", {})}

        def finalize_id_token(self, id_token: Any, token: Any, handler: Any, request: Any) -> str:
            signed = super().finalize_id_token(id_token, token, handler, request)
            fault = PEOPLE[request.user.username].get("fault")
            return tampered(signed, fault, request.client.jwk_key) if fault else signed

    globals()["Validator"] = Validator
    globals()["urlpatterns"] = [
        path("control", control),
        path("accounts/login/", LoginView.as_view()),
        path("o/", include("oauth2_provider.urls", namespace="oauth2_provider")),
    ]


if __name__ == "__main__":
    sys.modules["serve"] = sys.modules["__main__"]
    __name__ = "serve"
    main()
