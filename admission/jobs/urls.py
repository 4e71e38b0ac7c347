"""URLs of jobs, projects, classes and the queue, under ``/api/v1/``."""

from django.urls import URLPattern, URLResolver, path
from rest_framework.routers import SimpleRouter

from admission.jobs.api import views
from admission.jobs.api.artifacts import JobArtifactsView
from admission.jobs.api.serializers import ClassCheckedSerializer, ClassVersionSerializer
from admission.jobs.catalog import CLASSES
from policies.documents.api import routes

router = SimpleRouter(trailing_slash=False)
router.register("jobs", views.JobViewSet, "job")
router.register("projects", views.ProjectViewSet, "project")
router.register("classes", views.SchedulingClassViewSet, "scheduling-class")

urlpatterns: list[URLPattern | URLResolver] = [
    *router.urls,
    *routes(
        CLASSES,
        "classes",
        ClassVersionSerializer,
        says=views.says,
        nothing={"name": ""},
        says_serializer=ClassCheckedSerializer,
    ),
    path("jobs/<str:name>/phases", views.JobPhasesView.as_view(), name="job-phases"),
    path("jobs/<str:name>/events", views.JobEventsView.as_view(), name="job-events"),
    path("jobs/<str:name>/artifacts", JobArtifactsView.as_view(), name="job-artifacts"),
    path("users/<str:username>/limits", views.UserLimitsView.as_view(), name="user-limits"),
    path("queue", views.QueueView.as_view(), name="queue-list"),
    path("schemas/job-spec", views.JobSpecSchemaView.as_view(), name="job-spec-schema"),
]
