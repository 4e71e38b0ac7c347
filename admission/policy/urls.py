"""URLs of admission policies, under ``/api/v1/``."""

from django.urls import URLPattern, URLResolver, path

from admission.policy.api import views
from admission.policy.api.serializers import (
    AdmissionPolicyCheckedSerializer,
    AdmissionPolicyVersionSerializer,
)
from admission.policy.catalog import POLICIES
from policies.documents.api import routes

urlpatterns: list[URLPattern | URLResolver] = [
    path("admission-policies", views.AdmissionPoliciesView.as_view(), name="admission-policy-list"),
    path(
        "admission-policy",
        views.AdmissionPolicyInForceView.as_view(),
        name="admission-policy-in-force",
    ),
    *routes(
        POLICIES,
        "admission-policies",
        AdmissionPolicyVersionSerializer,
        says=views.says,
        nothing={"name": ""},
        says_serializer=AdmissionPolicyCheckedSerializer,
    ),
    path(
        "admission-policies/<slug:name>/versions/<int:number>/shadow",
        views.ShadowView.as_view(),
        name="admission-policy-shadow",
    ),
]
