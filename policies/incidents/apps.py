from django.apps import AppConfig
from django.core import checks


class IncidentsConfig(AppConfig):
    name = "policies.incidents"
    label = "policies_incidents"
    verbose_name = "Incidents"

    def ready(self) -> None:
        """Register checks that stop the start where inhibitions or networks cannot be read."""
        from policies.incidents.checks import inhibitions_file, notify_networks

        checks.register(inhibitions_file, "headroom")
        checks.register(notify_networks, "headroom")
