"""Email, by the server that the settings name."""

from __future__ import annotations

import smtplib

from django.core.exceptions import ValidationError
from django.core.mail import BadHeaderError, EmailMessage
from django.core.validators import validate_email

from policies.incidents.channels.content import BadDestination, Content, Destination, clip
from policies.incidents.outgoing import Forbidden, Unreachable

__all__ = ["addresses", "check", "send"]

_MAX_ADDRESSES = 50
_SUBJECT = 200


def addresses(target: str) -> list[str]:
    """Return the addresses of a channel."""
    return [part.strip() for part in target.split(",") if part.strip()]


def check(destination: Destination) -> None:
    found = addresses(destination.target)
    if not 0 < len(found) <= _MAX_ADDRESSES:
        raise BadDestination("target", f"give 1 to {_MAX_ADDRESSES} addresses, with commas between")
    for address in found:
        try:
            validate_email(address)
        except ValidationError:
            raise BadDestination("target", f"{address!r} is no email address") from None


def send(content: Content, destination: Destination) -> None:
    """Send an email. Raises SendingError. The message id is the same for each try."""
    subject = clip(" ".join(content.headline.split()), _SUBJECT)
    body = "\n".join([content.title, "", *content.lines, "", content.url]).strip() + "\n"
    thread = f"<{_id(content.group)}@headroom>"
    message = EmailMessage(
        subject,
        body,
        to=addresses(destination.target),
        headers={
            "Message-ID": f"<{_id(content.key)}@headroom>",
            # One thread for each incident.
            "References": thread,
            "Auto-Submitted": "auto-generated",
        },
    )
    try:
        message.send()
    except BadHeaderError as error:
        raise Forbidden(str(error)) from None
    except (OSError, smtplib.SMTPException) as error:
        raise Unreachable(f"the email server: {error}") from None


def _id(text: str) -> str:
    return "".join(each if each.isalnum() or each in ".-" else "-" for each in text)
