from django.apps import AppConfig
from django.contrib.admin import apps


class ProjectConfig(AppConfig):
    name = "config"
    verbose_name = "Headroom"
    default = True

    def ready(self) -> None:
        from config import checks

        checks.register()


class AdminConfig(apps.AdminConfig):
    default = False
    default_site = "accounts.edge.admin.AdminSite"
