from django.apps import AppConfig


class CurtailmentsConfig(AppConfig):
    name = "admission.curtailments"
    label = "admission_curtailments"
    verbose_name = "Curtailments"
