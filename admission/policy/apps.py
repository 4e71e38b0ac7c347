from django.apps import AppConfig


class PolicyConfig(AppConfig):
    name = "admission.policy"
    label = "admission_policy"
    verbose_name = "Admission policy"
