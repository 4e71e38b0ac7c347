"""URLs of jobs, projects, classes and the queue, under ``/api/v1/``."""

from django.urls import URLPattern, URLResolver, path
from rest_framework.routers import SimpleRouter

from admission.jobs.api import views

router = SimpleRouter(trailing_slash=False)
router.register("jobs", views.JobViewSet, "job")
router.register("projects", views.ProjectViewSet, "project")
router.register("classes", views.SchedulingClassViewSet, "scheduling-class")

urlpatterns: list[URLPattern | URLResolver] = [
    *router.urls,
    path("jobs/<str:name>/events", views.JobEventsView.as_view(), name="job-events"),
    path("users/<str:username>/limits", views.UserLimitsView.as_view(), name="user-limits"),
    path("queue", views.QueueView.as_view(), name="queue-list"),
    path("schemas/job-spec", views.JobSpecSchemaView.as_view(), name="job-spec-schema"),
]
