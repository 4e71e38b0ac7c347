from django.apps import AppConfig


class RolloutsConfig(AppConfig):
    name = "policies.rollouts"
    label = "policies_rollouts"
    verbose_name = "Rollouts"
