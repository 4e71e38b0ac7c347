"""The WSGI application, which needs threads. The front door, ``config.door``, stands before it."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

django = get_wsgi_application()

# Models need Django set up.
from admission.executors.fast_path import WorkFastPath  # noqa: E402
from config.metrics import recorder  # noqa: E402
from policies.restrictions.fast_path import LimitsFastPath  # noqa: E402

work = WorkFastPath(django, recorder("work", "GET", 200))
application = LimitsFastPath(work, recorder("limits", "GET", 200))
