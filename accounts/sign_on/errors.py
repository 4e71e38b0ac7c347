"""Why nobody was signed on."""

from __future__ import annotations


class SignOnError(Exception):
    """No sign-on: a stable code for log and audit, and a sentence for the person."""

    status = 403

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence


class ProviderAwayError(SignOnError):
    """The provider does not answer, or its answer cannot be read."""

    status = 503

    def __init__(self, detail: str) -> None:
        super().__init__(
            "provider_away", "The identity provider cannot be reached. Try again in a moment."
        )
        self.detail = detail


class StaleAttemptError(SignOnError):
    """The browser came back without the cookie that it left with."""

    status = 400

    def __init__(self) -> None:
        super().__init__(
            "stale_attempt",
            "This sign-on took too long, was finished before, or was begun in another window.",
        )


class TokenRefusedError(SignOnError):
    """The provider's answer does not prove who somebody is. ``code`` names the fault."""

    def __init__(self, code: str) -> None:
        super().__init__(
            code, "What the identity provider sent could not be verified. Tell your admin."
        )
