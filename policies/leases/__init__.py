"""Leases: what somebody wants for a time, under a key, held until nobody renews it."""
