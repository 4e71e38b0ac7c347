"""URLs of the calendar, under ``/api/v1/``."""

from django.urls import URLPattern, URLResolver, path

from admission.calendar import api

urlpatterns: list[URLPattern | URLResolver] = [
    path("calendar", api.CalendarView.as_view(), name="calendar"),
    path("calendar/figure", api.CalendarFigureView.as_view(), name="calendar-figure"),
]
