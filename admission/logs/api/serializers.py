"""Output of jobs in JSON."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

__all__ = ["JobLogsSerializer"]


class JobLogsSerializer(serializers.Serializer[dict[str, Any]]):
    """What one node's part of an attempt has said, from one place on."""

    job = serializers.CharField()
    phase = serializers.CharField(help_text="Empty: nothing was dispatched yet")
    attempt = serializers.IntegerField(allow_null=True)
    node = serializers.CharField()
    rank = serializers.IntegerField(allow_null=True)
    ranks = serializers.IntegerField(help_text="Nodes of the attempt")
    failed_ranks = serializers.ListField(
        child=serializers.IntegerField(),
        help_text="The first 20, in the order in which they failed",
    )
    state = serializers.CharField(help_text="offered, claimed, running, paused or ended")
    exit_code = serializers.IntegerField(allow_null=True)
    why = serializers.CharField(help_text="How it ended, in words")
    offset = serializers.IntegerField(help_text="The place of text in all of the output, bytes")
    next_offset = serializers.IntegerField(help_text="To go on from")
    size = serializers.IntegerField(allow_null=True, help_text="All of the output so far, bytes")
    text = serializers.CharField(help_text="Bytes that are no UTF-8 stand as \\xff")
    tail = serializers.CharField(
        help_text="The last of it, where its machine has none or does not answer"
    )
    pending = serializers.BooleanField(
        help_text="Ask again: its machine is asked, or it has not begun"
    )
    over = serializers.BooleanField(help_text="Nothing follows")
