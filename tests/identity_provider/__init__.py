"""A real identity provider, django-oauth-toolkit, as a process of its own beside the tests."""
