"""Sites whose machines are those of a recording, and not there: ``headroom replay`` makes them."""

from __future__ import annotations

from typing import Any

from django.db.models import Exists, OuterRef, QuerySet

from fleet.models import Node
from headroom.contracts import RECORDING_OVER

__all__ = ["recordings_over"]


def recordings_over() -> QuerySet[Node, Any]:
    """Return the ids of sites whose recording is over, as a subquery: all their nodes say so.

    One node that does not keeps a site: no label on a few machines hides those beside them.
    """
    labeled = Node.objects.order_by().filter(labels__has_key=RECORDING_OVER)
    others = Node.objects.order_by().exclude(labels__has_key=RECORDING_OVER)
    beside = others.filter(rack__site=OuterRef("rack__site"))
    return labeled.exclude(Exists(beside)).values("rack__site")
