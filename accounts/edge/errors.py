"""Errors of the REST API that several rooms raise."""

from __future__ import annotations

from rest_framework import status
from rest_framework.exceptions import APIException


class InUse(APIException):
    """Other rows refer to the row, or are inside it."""

    status_code = status.HTTP_409_CONFLICT
    default_code = "in_use"


class WrongState(APIException):
    """The action does not fit the state of the row."""

    status_code = status.HTTP_409_CONFLICT
    default_code = "wrong_state"
