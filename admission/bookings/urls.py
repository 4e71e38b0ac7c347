"""URLs of bookings, under ``/api/v1/``."""

from django.urls import URLPattern, URLResolver
from rest_framework.routers import SimpleRouter

from admission.bookings.api import views

router = SimpleRouter(trailing_slash=False)
router.register("bookings", views.BookingViewSet, "booking")

urlpatterns: list[URLPattern | URLResolver] = [*router.urls]
