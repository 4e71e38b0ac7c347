from django.apps import AppConfig


class PlaybooksConfig(AppConfig):
    name = "policies.playbooks"
    label = "policies_playbooks"
    verbose_name = "Playbooks"
