from django.apps import AppConfig


class ProjectConfig(AppConfig):
    name = "config"
    verbose_name = "Headroom"

    def ready(self) -> None:
        from config import checks

        checks.register()
