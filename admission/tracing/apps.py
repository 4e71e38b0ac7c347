from django.apps import AppConfig


class TracingConfig(AppConfig):
    name = "admission.tracing"
    label = "admission_tracing"
    verbose_name = "Tracing"
