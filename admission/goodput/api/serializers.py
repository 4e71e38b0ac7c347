"""Accounts of jobs in JSON."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

__all__ = ["JobGoodputSerializer"]


class CauseSerializer(serializers.Serializer[dict[str, Any]]):
    """The time that went to one cause."""

    cause = serializers.CharField(help_text="A stable token; see the explanation of the account")
    gpu_s = serializers.FloatField(help_text="GPU-seconds")
    share = serializers.FloatField(help_text="Of the time that was held")
    lever = serializers.CharField(help_text="What brings it back; empty: it is not lost")


class AttemptGoodputSerializer(serializers.Serializer[dict[str, Any]]):
    """The account of one attempt."""

    phase = serializers.CharField()
    attempt = serializers.IntegerField()
    gpus = serializers.IntegerField()
    told = serializers.BooleanField(help_text="Its loop reported its steps")
    gpu_s = serializers.FloatField(help_text="GPU-seconds that it held in the span")
    causes = CauseSerializer(many=True)


class JobGoodputSerializer(serializers.Serializer[dict[str, Any]]):
    """The account of a job. Causes add up to ``gpu_s``; those of no time are left out."""

    job = serializers.CharField()
    start = serializers.FloatField(help_text="Unix s", allow_null=True)
    end = serializers.FloatField(help_text="Unix s", allow_null=True)
    gpu_s = serializers.FloatField(help_text="GPU-seconds that it held in the span")
    goodput = serializers.FloatField(
        allow_null=True,
        help_text="Share of it that was productive, at least; null: its loop told of none of it",
    )
    cannot_tell = serializers.ListField(
        child=serializers.CharField(),
        help_text="Causes that lie in unknown time, since an attempt has not told",
    )
    causes = CauseSerializer(many=True)
    attempts = AttemptGoodputSerializer(many=True)
