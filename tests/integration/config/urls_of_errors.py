"""Views that end badly, for test_errors.py."""

from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.db import connection
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import path

from config.urls import (
    handler400,
    handler403,
    handler404,
    handler500,
)
from config.urls import urlpatterns as real_urls

__all__ = ["handler400", "handler403", "handler404", "handler500", "urlpatterns"]


def fail(_request: HttpRequest, status: int) -> HttpResponse:
    match status:
        case 400:
            raise SuspiciousOperation("token hru_abcdefghijklmnopqrstuvwxyz is odd")
        case 403:
            raise PermissionDenied("The role viewer may not edit fleet.")
        case 404:
            raise Http404
        case _:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1/0")
            raise AssertionError


urlpatterns = [
    *real_urls,
    path("fail/<int:status>", fail),
    path("api/v1/fail/<int:status>", fail),
]
