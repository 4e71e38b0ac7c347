"""Reading an ID token: its claims count only once all of these checks hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import ClaimError, InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet
from joserfc.jws import JWSRegistry

from accounts.sign_on.errors import TokenRefusedError

__all__ = ["Expected", "UnknownKeyError", "read"]

#: Signatures by the provider's private key. None and HMAC are never among them, whatever it lists.
_ALGORITHMS = [
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
]  # fmt: skip


class UnknownKeyError(Exception):
    """The token's key is not among those we have: the provider may have a new one."""


@dataclass(frozen=True)
class Expected:
    """The expected content of the token of one sign-on."""

    issuer: str
    client_id: str
    nonce: str
    access_token: str
    #: by how much the clocks may differ, s
    clock_skew_s: int


def read(id_token: str, keys: KeySet, expected: Expected, now_s: int) -> dict[str, Any]:
    """Return the claims of ``id_token``, of which signature and content hold at ``now_s``."""
    try:
        token = jwt.decode(id_token, keys, registry=JWSRegistry(algorithms=_ALGORITHMS))
        _check(token, expected).validate(now=now_s, leeway=expected.clock_skew_s)
    except InvalidKeyIdError:
        raise UnknownKeyError from None
    except ClaimError as error:
        raise TokenRefusedError(f"bad_{error.claim}") from error
    except (JoseError, ValueError) as error:
        raise TokenRefusedError("bad_signature") from error
    return dict(token.claims)


def _check(token: jwt.Token, expected: Expected) -> CodeIDToken:
    wanted = {
        "iss": {"essential": True, "value": expected.issuer},
        "aud": {"essential": True, "value": expected.client_id},
        "sub": {"essential": True, "allow_blank": False},
        "nonce": {"essential": True, "value": expected.nonce},
    }
    known = {"client_id": expected.client_id, "access_token": expected.access_token}
    return CodeIDToken(token.claims, token.header, wanted, {**known, "nonce": expected.nonce})


def texts(claims: Mapping[str, Any], name: str) -> frozenset[str]:
    """Return a claim that is a list of texts, or one text; empty for any other."""
    value = claims.get(name)
    listed = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return frozenset(each for each in listed if isinstance(each, str) and each)
