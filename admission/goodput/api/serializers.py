"""Accounts of jobs in JSON."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from admission.goodput.costs import Amount, Cost

__all__ = ["GoodputSerializer", "JobGoodputSerializer", "RestrictionCostSerializer"]


class CauseSerializer(serializers.Serializer[dict[str, Any]]):
    """The time that went to one cause."""

    cause = serializers.CharField(help_text="A stable token; see the explanation of the account")
    gpu_s = serializers.FloatField(help_text="GPU-seconds")
    share = serializers.FloatField(help_text="Of the time that was held")
    lever = serializers.CharField(help_text="What brings it back; empty: it is not lost")
    badput = serializers.CharField(
        allow_blank=True, help_text="Its name in ml-goodput-measurement; empty: it has none there"
    )


class PricedCauseSerializer(CauseSerializer):
    """The time that went to one cause, and what that comes to."""

    money = serializers.FloatField(
        allow_null=True,
        help_text="At the price of a GPU-hour at its site then, of the time of which that is "
        "known; null: of none",
    )


class ProgramSerializer(serializers.Serializer[dict[str, Any]]):
    """What models took of what their GPUs can compute, in productive time."""

    program_goodput = serializers.FloatField(
        allow_null=True,
        help_text="Model FLOP utilization of productive time, by the FLOPs that jobs state of a "
        "step; null: none does, or the peak of their GPUs is not known",
    )
    program_known = serializers.FloatField(
        allow_null=True, help_text="The share of productive time for which it is known"
    )
    program_verdict = serializers.CharField(
        allow_blank=True, help_text="Where it lies beside well-optimized training, and what helps"
    )


class AttemptGoodputSerializer(ProgramSerializer):
    """The account of one attempt."""

    phase = serializers.CharField()
    attempt = serializers.IntegerField()
    gpus = serializers.IntegerField()
    told = serializers.BooleanField(help_text="Its loop reported its steps")
    gpu_s = serializers.FloatField(help_text="GPU-seconds that it held in the span")
    causes = CauseSerializer(many=True)


class WaitedSerializer(serializers.Serializer[dict[str, Any]]):
    """Demand that waited for one reason."""

    reason = serializers.CharField(allow_blank=True, help_text="The dominant one; empty: none told")
    demand_gpu_s = serializers.FloatField(help_text="GPUs that were waited for, times how long")
    money = serializers.FloatField(
        allow_null=True,
        help_text="What the demand comes to at ENERGY_WAITING_GPU_HOUR; null: that is not stated",
    )


class JobGoodputSerializer(ProgramSerializer):
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
    currency = serializers.CharField()
    waiting = WaitedSerializer(
        many=True, help_text="Of all the time since it was submitted, whatever span is asked for"
    )


class SumsSerializer(ProgramSerializer):
    """Sums of GPU time. Causes add up to ``gpu_s``; those of no time are left out."""

    gpu_s = serializers.FloatField(help_text="GPU-seconds, held or not")
    held_gpu_s = serializers.FloatField(help_text="Of it, what jobs held")
    goodput = serializers.FloatField(
        allow_null=True, help_text="Share of what was held that was productive, at least"
    )
    goodput_at_most = serializers.FloatField(
        allow_null=True, help_text="The same, if all was productive of which no loop told"
    )
    money = serializers.FloatField(
        allow_null=True, help_text="What it comes to at the price of a GPU-hour; null: not known"
    )
    price_known = serializers.FloatField(
        allow_null=True, help_text="The share of all its time of which that price is known"
    )
    causes = PricedCauseSerializer(many=True)


class GroupSerializer(SumsSerializer):
    """The sums of one project, rack, hour or the like."""

    key = serializers.DictField(
        help_text="By the names of parameters; an empty project: nobody held it"
    )


class WaitingSerializer(WaitedSerializer):
    """Demand that waited. It stands beside causes, and is no part of their sum."""

    wanted_gpu_s = serializers.FloatField(help_text="Of it, what stood against GPUs that were free")


class IterationsSerializer(serializers.Serializer[dict[str, Any]]):
    """Iterations of one project in one week."""

    project = serializers.CharField()
    week = serializers.DateField(help_text="Its Monday")
    moved = serializers.FloatField(help_text="That moved a model on")
    repeated = serializers.FloatField(help_text="That had been made before")
    missed = serializers.FloatField(help_text="That restarts, pauses, caps and throttling took")
    index = serializers.FloatField(
        allow_null=True, help_text="Model iteration index: the share that moved a model on"
    )


class GoodputSerializer(SumsSerializer):
    """The account of the fleet over whole hours."""

    start = serializers.FloatField(help_text="Unix s: the first hour that begins in the span")
    end = serializers.FloatField(help_text="Unix s")
    by = serializers.CharField()
    currency = serializers.CharField()
    hours = serializers.IntegerField(help_text="Of which there is an account")
    missing_hours = serializers.IntegerField(
        help_text="That are over, and of which there is none; they count for nothing"
    )
    first_missing = serializers.FloatField(allow_null=True, help_text="The first of them, Unix s")
    scheduling_goodput = serializers.FloatField(
        allow_null=True,
        help_text="Share of all GPU time that jobs held; of projects: of what they held or waited "
        "for",
    )
    runtime_goodput = serializers.FloatField(allow_null=True, help_text="The same as `goodput`")
    fleet_goodput = serializers.FloatField(allow_null=True, help_text="The product of both")
    ml_productivity_goodput = serializers.FloatField(
        allow_null=True, help_text="Times program goodput, as far as that is known"
    )
    groups = GroupSerializer(many=True)
    waiting = WaitingSerializer(many=True)
    iterations = IterationsSerializer(many=True)


class AmountSerializer(serializers.Serializer[Amount]):
    """A sum, and how much of the time it is known of."""

    value = serializers.FloatField(allow_null=True, help_text="Null: it is not known")
    known = serializers.FloatField(
        allow_null=True, help_text="The share of the time that it is known of; null: there is none"
    )


class CostSerializer(serializers.Serializer[Cost]):
    """What a restriction took, in the hours of which there is an account."""

    hours = serializers.IntegerField(help_text="That it touched")
    missing = serializers.IntegerField(help_text="Of these, over and without an account")
    open = serializers.IntegerField(help_text="Of these, not over yet")
    gpu_s = serializers.FloatField(
        help_text="GPU-seconds: of a cap those that it held back, of a drain those that nobody held"
    )
    shared_gpu_s = serializers.FloatField(
        help_text="Of these, while others asked for the same: the controller, directives, bookings"
    )
    kwh = AmountSerializer(help_text="What its projects' GPUs drew in that time")
    energy = AmountSerializer(help_text="What that energy cost")
    gpu_hours = AmountSerializer(help_text="The time at the price of a GPU-hour")
    money = serializers.FloatField(allow_null=True, help_text="Of both, as far as it is known")
    is_least = serializers.BooleanField(help_text="It may have cost more than is known")
    is_own = serializers.BooleanField(help_text="Of the reader's own projects alone")


class RestrictionCostSerializer(serializers.Serializer[dict[str, Any]]):
    """What a restriction cost, or why that is not known."""

    restriction = serializers.IntegerField()
    currency = serializers.CharField()
    cost = CostSerializer(allow_null=True)
    not_known = serializers.CharField(allow_blank=True, help_text="Why; empty: it is known")
