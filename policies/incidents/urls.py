"""URLs of incidents, under ``/api/v1/``."""

from django.urls import URLPattern, URLResolver, path
from rest_framework.routers import SimpleRouter

from policies.incidents.api.alertmanager import AlertmanagerView
from policies.incidents.api.channels import ChannelViewSet, DeliveryViewSet
from policies.incidents.api.incidents import IncidentViewSet
from policies.incidents.api.silences import InhibitionsView, SilenceViewSet

router = SimpleRouter(trailing_slash=False)
router.register("incidents", IncidentViewSet, "incident")
router.register("silences", SilenceViewSet, "silence")
router.register("notification-channels", ChannelViewSet, "notification-channel")
router.register("notifications", DeliveryViewSet, "notification")

urlpatterns: list[URLPattern | URLResolver] = [
    path("alertmanager", AlertmanagerView.as_view(), name="alertmanager"),
    path("inhibitions", InhibitionsView.as_view(), name="inhibitions"),
    *router.urls,
]
