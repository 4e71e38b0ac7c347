"""The application that granian serves: ``config.door.rsgi:application``."""

# First, since it sets Django up.
from config.wsgi import application as wsgi

# isort: split
from config.door.application import Door

application = Door(wsgi)
