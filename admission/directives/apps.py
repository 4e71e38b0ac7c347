from django.apps import AppConfig


class DirectivesConfig(AppConfig):
    name = "admission.directives"
    label = "admission_directives"
    verbose_name = "Directives"
