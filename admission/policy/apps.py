from django.apps import AppConfig


class PolicyConfig(AppConfig):
    name = "admission.policy"
    label = "admission_policy"
    verbose_name = "Admission policy"

    def ready(self) -> None:
        from admission.policy import catalog
        from policies import traffic

        # What agents are told of links, and what admission counts on, are the same shares.
        traffic.provide(catalog.traffic_in_force)
