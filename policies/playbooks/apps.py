from django.apps import AppConfig


class PlaybooksConfig(AppConfig):
    name = "policies.playbooks"
    label = "policies_playbooks"
    verbose_name = "Playbooks"

    def ready(self) -> None:
        from policies.incidents import follow
        from policies.playbooks import keeping

        follow.KEEPS_OPEN.append(keeping.keeps_open)
