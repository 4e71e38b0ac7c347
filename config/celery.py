"""The Celery application: ``celery -A config worker`` and ``celery -A config beat``."""

import os
import warnings

from celery import Celery
from celery.signals import setup_logging, task_prerun, worker_process_init
from django.db import close_old_connections
from django_structlog.celery.steps import DjangoStructLogInitStep

from config import garbage, logs
from config.beating import WorkerBeat

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
# `manage.py prepare` has done them. They take a third of the start, and ask the database: a worker
# that is started again while that fails over would die of it.
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")

# It warns root of pickle in the queue; ours takes nothing but JSON.
warnings.filterwarnings("ignore", message="You're running the worker with superuser privileges")

setup_logging.connect(logs.configure_celery)


@task_prerun.connect
def let_go_of_dead_connections(**_: object) -> None:
    """Close connections to the database that are dead, so that a task begins with a new one."""
    close_old_connections()


@worker_process_init.connect
def have_long_to_live(**_: object) -> None:
    """Prepare a worker's process for a large inventory in memory: collect garbage seldom."""
    garbage.look_seldom()


app = Celery("headroom", task_cls="config.loops:LoopTask")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
app.autodiscover_tasks(["policies", "admission"])  # of these only the parts are applications
# Log lines of a task carry its id, and the request's that asked for it.
app.steps["worker"].add(DjangoStructLogInitStep)
app.steps["worker"].add(WorkerBeat)
