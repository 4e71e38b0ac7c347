from django.apps import AppConfig


class HeadroomConfig(AppConfig):
    name = "policies.headroom"
    label = "policies_headroom"
    verbose_name = "Headroom"
