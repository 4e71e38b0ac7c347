"""The admission policy as one kind of document, and the version that is in force."""

from __future__ import annotations

from admission.core import policy
from admission.core.policy import AdmissionPolicy
from admission.policy.models import AdmissionPolicyVersion
from admission.policy.reading import compiled
from fleet.cache import Cache
from policies.documents.life import Kind
from policies.documents.models import States
from policies.traffic import TrafficPolicy

__all__ = ["POLICIES", "policy_in_force", "traffic_in_force"]

POLICIES = Kind(
    noun="admission-policy",
    model=AdmissionPolicyVersion,
    name_of=lambda text: policy.for_server(text).name,
    steps=(States.SHADOW, States.ACTIVE),
    is_single=True,
)


def policy_in_force() -> AdmissionPolicy:
    """Return the policy in force: the active version, else the built-in one. One query."""
    active = AdmissionPolicyVersion.objects.active().values_list("text", flat=True).first()
    return (None if active is None else compiled(active)) or AdmissionPolicy()


#: A change of the policy is known to every process within this time, s.
_traffic: Cache[TrafficPolicy] = Cache(2.0)


def traffic_in_force() -> TrafficPolicy:
    """Return how links are shared, as of at most two seconds ago."""
    return _traffic.get(lambda: policy_in_force().traffic)
