"""What stands between a request and whatever takes it, the same for all rooms.

Numbers, moments and names are read in one way, bodies within one bound, and the admin site checks
what Django would hand to the database as it came.
"""
