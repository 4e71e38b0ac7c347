from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "accounts"
    verbose_name = "People, tokens and audit"

    def ready(self) -> None:
        from accounts import receivers  # noqa: F401 - connects them
