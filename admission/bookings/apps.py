from django.apps import AppConfig


class BookingsConfig(AppConfig):
    name = "admission.bookings"
    label = "admission_bookings"
    verbose_name = "Bookings"
