from django.apps import AppConfig


class BaselinesConfig(AppConfig):
    name = "admission.baselines"
    label = "admission_baselines"
    verbose_name = "Baselines"
