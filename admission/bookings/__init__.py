"""Bookings: advance reservations of hosts for projects, and maintenance."""
