from django.apps import AppConfig


class SlosConfig(AppConfig):
    name = "admission.slos"
    label = "admission_slos"
    verbose_name = "Service levels"
