from django.apps import AppConfig


class EnergyConfig(AppConfig):
    name = "admission.energy"
    label = "admission_energy"
    verbose_name = "Energy"
