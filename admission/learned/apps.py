from django.apps import AppConfig


class LearnedConfig(AppConfig):
    name = "admission.learned"
    label = "admission_learned"
    verbose_name = "What was learned of jobs"
