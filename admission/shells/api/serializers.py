"""Terminals in JSON."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

__all__ = ["ShellAskSerializer", "ShellSerializer"]

_MOST_CELLS = 1000


class ShellAskSerializer(serializers.Serializer[Any]):
    """A terminal to be opened. What is left out is chosen as for output."""

    phase = serializers.CharField(max_length=60, default="", allow_blank=True)
    attempt = serializers.IntegerField(min_value=1, max_value=2**31 - 1, required=False)
    rank = serializers.IntegerField(min_value=0, max_value=2**31 - 1, required=False)
    node = serializers.CharField(max_length=200, default="", allow_blank=True)
    command = serializers.ListField(
        child=serializers.CharField(max_length=4096, trim_whitespace=False),
        max_length=100,
        default=list,
        help_text="Program and arguments; empty: a login shell",
    )
    is_terminal = serializers.BooleanField(
        default=True, help_text="A person sits there; else what it says is passed on as it is"
    )
    term = serializers.RegexField(r"\A[A-Za-z0-9+._-]{1,64}\Z", default="xterm")
    rows = serializers.IntegerField(min_value=1, max_value=_MOST_CELLS, default=24)
    columns = serializers.IntegerField(min_value=1, max_value=_MOST_CELLS, default=80)


class ShellSerializer(serializers.Serializer[Any]):
    """A terminal that its machine was asked for."""

    session = serializers.UUIDField()
    node = serializers.CharField()
    secret = serializers.CharField(help_text="Of this end; good for the first connection alone")
