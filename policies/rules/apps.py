from django.apps import AppConfig


class RulesConfig(AppConfig):
    name = "policies.rules"
    label = "policies_rules"
    verbose_name = "Rules"
