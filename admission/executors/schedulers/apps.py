from django.apps import AppConfig


class SchedulersConfig(AppConfig):
    name = "admission.executors.schedulers"
    label = "admission_schedulers"
    verbose_name = "Schedulers"
