"""URLs of directives, fallback and advice, under ``/api/v1/``."""

from django.urls import URLPattern, URLResolver, path

from admission.directives.api import views

urlpatterns: list[URLPattern | URLResolver] = [
    path("jobs/<str:name>/directives", views.JobDirectivesView.as_view(), name="job-directives"),
    path("jobs/<str:name>/fallback", views.JobFallbackView.as_view(), name="job-fallback"),
    path("jobs/<str:name>/advice", views.JobAdviceView.as_view(), name="job-advice"),
    path(
        "restrictions/<int:pk>/remaining",
        views.RestrictionRemainingView.as_view(),
        name="restriction-remaining",
    ),
    path("classes/<str:name>/advice", views.ClassAdviceView.as_view(), name="class-advice"),
    path(
        "directives/<int:pk>/withdraw",
        views.DirectiveWithdrawView.as_view(),
        name="directive-withdraw",
    ),
]
