from django.apps import AppConfig


class JobsConfig(AppConfig):
    name = "admission.jobs"
    label = "admission_jobs"
    verbose_name = "Jobs"

    def ready(self) -> None:
        from accounts import visibility
        from admission.jobs import receivers  # noqa: F401 - connects them
        from admission.jobs.places import Places
        from admission.jobs.visible import JobsOfProjects
        from telemetry import placed

        # Agents may report on jobs that are placed on their nodes.
        placed.provide(Places())
        visibility.provide(JobsOfProjects())
