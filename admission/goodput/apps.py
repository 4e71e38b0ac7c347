from django.apps import AppConfig


class GoodputConfig(AppConfig):
    name = "admission.goodput"
    label = "admission_goodput"
    verbose_name = "Goodput"
