from django.apps import AppConfig


class RestrictionsConfig(AppConfig):
    name = "policies.restrictions"
    label = "policies_restrictions"
    verbose_name = "Restrictions"
