from django.apps import AppConfig


class LearnedConfig(AppConfig):
    name = "admission.learned"
    label = "admission_learned"
    verbose_name = "What was learned of jobs"

    def ready(self) -> None:
        from admission.allocation import open_attempts
        from policies.headroom import live

        # Whoever asks for headroom sees what admitted jobs may still draw.
        live.provide_reservations(open_attempts.reserved_in)
