"""Prometheus metrics of all processes, and those of HTTP.

With PROMETHEUS_MULTIPROC_DIR set (before this is imported: the supervisor does), every process
keeps its numbers in files there and any web process answers for all. Without it, one process
answers for itself. The folder is to be empty at start: counters of dead processes stay in it.
"""

from __future__ import annotations

import hmac
import os
import time
from typing import TYPE_CHECKING

from django.conf import settings
from django.http import HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector

from accounts import tokens
from accounts.roles import Capability
from config import room_metrics
from policies.headroom import metrics as places

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpRequest, HttpResponseBase

# A series more for each counter, of when it began: Prometheus finds that out by itself.
disable_created_metrics()  # type: ignore[no-untyped-call]

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

HTTP_REQUESTS = Counter(
    "headroom_http_requests",
    "Requests answered.",
    ["view", "method", "status"],
)
HTTP_DURATION = Histogram(
    "headroom_http_request_duration_seconds",
    "Time from the request to the start of its answer.",
    ["view", "method"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)


def recorder(view: str, method: str, status: int) -> Callable[[float], None]:
    """Return a function that counts and times answers of one kind that bypass Django, in s."""
    count = HTTP_REQUESTS.labels(view, method, status)
    duration = HTTP_DURATION.labels(view, method)

    def record(seconds: float) -> None:
        count.inc()
        duration.observe(seconds)

    return record


class RequestMetricsMiddleware:
    """Counts and times requests by the name of their view: paths would be without number."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        started = time.perf_counter()
        response = self.get_response(request)
        view = view_name(request)
        method = request.method if request.method in METHODS else "other"
        HTTP_REQUESTS.labels(view, method, response.status_code).inc()
        HTTP_DURATION.labels(view, method).observe(time.perf_counter() - started)
        return response


def view_name(request: HttpRequest) -> str:
    """Return the URL's name, "static" for assets, or "none" where no URL matched."""
    if request.resolver_match is not None:
        return request.resolver_match.view_name
    return "static" if request.path_info.startswith(settings.STATIC_URL) else "none"


@never_cache
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Answer Prometheus, which sends METRICS_TOKEN, or a person who may view the fleet."""
    if not (_holds_token(request) or _may_view(request)):
        response = HttpResponse("METRICS_TOKEN or a login is needed\n", status=401)
        response["WWW-Authenticate"] = 'Bearer realm="headroom metrics"'
        return response
    text = generate_latest(_registry()) + room_metrics.generate() + places.generate()
    return HttpResponse(text, content_type=CONTENT_TYPE_LATEST)


def _holds_token(request: HttpRequest) -> bool:
    given = tokens.from_header(request.headers.get("Authorization", ""))
    wanted: str = settings.METRICS_TOKEN
    return bool(wanted) and hmac.compare_digest(given.encode(), wanted.encode())


def _may_view(request: HttpRequest) -> bool:
    return request.user.is_authenticated and request.user.can(Capability.VIEW_FLEET)


def _registry() -> CollectorRegistry:
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return REGISTRY
    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return registry
