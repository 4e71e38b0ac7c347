"""URLs of diagnoses, under ``/api/v1/``."""

from django.urls import URLPattern, URLResolver, path

from admission.diagnosis.api import JobDiagnosisView

urlpatterns: list[URLPattern | URLResolver] = [
    path("jobs/<str:name>/diagnosis", JobDiagnosisView.as_view(), name="job-diagnosis"),
]
