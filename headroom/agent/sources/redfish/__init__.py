"""Power, energy and temperature of chassis, power supplies and PDUs that speak Redfish."""

from headroom.agent.sources.redfish.poller import RedfishMeter, RedfishPoller
from headroom.agent.sources.redfish.service import Credentials, Service

__all__ = ["Credentials", "RedfishMeter", "RedfishPoller", "Service"]
