"""URLs of energy, under ``/api/v1/``."""

from django.urls import URLPattern, URLResolver, path
from rest_framework.routers import SimpleRouter

from admission.energy.api import views

router = SimpleRouter(trailing_slash=False)
router.register("tariffs", views.TariffViewSet, "tariff")
router.register("budgets", views.BudgetViewSet, "budget")

urlpatterns: list[URLPattern | URLResolver] = [
    path("energy", views.EnergyView.as_view(), name="energy-report"),
    path("energy.csv", views.EnergyCsvView.as_view(), name="energy-report-csv"),
    path("demand-charges", views.DemandChargesView.as_view(), name="demand-charges"),
    path("demand-charges.csv", views.DemandChargesCsvView.as_view(), name="demand-charges-csv"),
    *router.urls,
]
