"""Leases: effects that an owner wants for a time, under a key, held until nobody renews them."""
