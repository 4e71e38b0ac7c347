from django.apps import AppConfig


class ExecutorsConfig(AppConfig):
    name = "admission.executors"
    label = "admission_executors"
    verbose_name = "Executors"
