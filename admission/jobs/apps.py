from django.apps import AppConfig


class JobsConfig(AppConfig):
    name = "admission.jobs"
    label = "admission_jobs"
    verbose_name = "Jobs"
