"""Checks of the input of requests, the same for all apps.

Numbers, moments and names are read in one way, bodies within one bound, and the admin site checks
what Django would hand to the database as it came.
"""
