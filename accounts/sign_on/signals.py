"""Signals of a sign-on to other apps."""

from django.dispatch import Signal

#: Sent in the transaction of a sign-on with ``user`` and ``groups`` (a frozenset of their names).
#: Of somebody who is refused, too, then without groups: what groups gave is taken back.
groups_known = Signal()
