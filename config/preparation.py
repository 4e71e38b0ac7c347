"""Preparations before the services start. Each step does nothing where it is done already.

Imports stay inside of the steps: most starts need none of them, and are to be fast.
"""

from __future__ import annotations

import fcntl
import hashlib
import secrets
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import connection, transaction

from config.embedded.state import write_private

if TYPE_CHECKING:
    from django.db.models import Model

    from accounts.models import User
    from accounts.roles import Capability
    from config.machine import LocalGpu
    from fleet.models import Node, Rack

ADMIN = "admin"
DEMO = "demo"
REPLAY = "replay"

LOCAL_SITE = "local"
LOCAL_RACK = "here"
#: One 16 A circuit at 230 V: what a machine outside of a data center hangs on.
CIRCUIT_W = 3680.0
#: A GPU whose driver tells no limit.
UNKNOWN_GPU_W = 300.0

#: Any number, so that replicas that start at the same time prepare one after the other.
_LOCK = 0x68656164


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Wait for whoever else prepares this database."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s)", [_LOCK])
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [_LOCK])


def migrate() -> bool:
    """Bring the tables up to date. Return False where they were."""
    from django.db.migrations.executor import MigrationExecutor

    executor = MigrationExecutor(connection)
    if not executor.migration_plan(executor.loader.graph.leaf_nodes()):
        return False
    from django.core.management import call_command

    call_command("migrate", interactive=False, verbosity=0)
    return True


def collect_static() -> bool:
    """Gather the assets, compressed. Return False where nothing changed since the last time.

    What was gathered before stays: pages that are open, and servers that run, still ask for it.
    """
    root = Path(settings.STATIC_ROOT)
    mark = root / ".collected"
    state = _assets_state(settings.BASE_DIR)
    if _says(mark, state):
        return False
    from django.core.management import call_command

    root.mkdir(parents=True, exist_ok=True)
    # Several installations of one checkout may start at once.
    with (root / ".collecting").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _says(mark, state):
            return False
        call_command("collectstatic", interactive=False, verbosity=0)
        mark.write_text(state)
    return True


def _says(mark: Path, state: str) -> bool:
    return mark.exists() and mark.read_text() == state


def _assets_state(base: Path) -> str:
    """Return a digest that changes with our assets and with the packages that bring others."""
    digest = hashlib.sha256()
    for path in (base / "requirements.txt", base / "dashboard" / "finders.py"):
        digest.update(path.read_bytes() if path.exists() else b"")
    for folder in (base / "static", *sorted(base.glob("*/static"))):
        for path in sorted(folder.rglob("*")):
            facts = path.stat()
            digest.update(f"{path}\0{facts.st_size}\0{facts.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def ensure_admin() -> tuple[str, Path] | None:
    """Create an admin where there is none. Return the name and the file with the password."""
    from accounts import audit
    from accounts.models import User
    from accounts.roles import Role

    if User.objects.filter(role=Role.ADMIN).exists():
        return None
    name = ADMIN
    while User.objects.filter(username=name).exists():
        # Somebody's, with another role: not ours to raise.
        name += "-"
    password = secrets.token_urlsafe(15)
    path: Path = settings.STATE_DIR / "admin-password"
    with transaction.atomic():
        user = User.objects.create_superuser(name, password=password)
        told = audit.changes(None, audit.state(user))
        audit.record(audit.SYSTEM, "user.create", name, role=Role.ADMIN.value, **told)
        # Inside, so that no admin exists whose password nobody knows.
        write_private(path, f"{password}\n")
    return name, path


def ensure_policies() -> list[str]:
    """Bring the rules, playbooks and objectives that come with us, where missing; return names."""
    from admission.slos import builtin as slos
    from policies.playbooks import builtin as playbooks
    from policies.rules import builtin as rules

    # Rules name playbooks.
    return [*playbooks.load(), *rules.load(), *slos.load()]


def ensure_demo() -> bool:
    """See to it that the demo fleet's token works. Return False where it did."""
    return _ensure_token(DEMO)


def ensure_replay() -> bool:
    """See to it that the token of ``headroom replay`` works. Return False where it did.

    It is for what a replay does, and for nothing else: its site, and that site's agent.
    """
    from accounts.roles import Capability

    return _ensure_token(REPLAY, {Capability.EDIT_FLEET, Capability.MANAGE_AGENTS})


def _ensure_token(name: str, scope: Collection[Capability] | None = None) -> bool:
    """See to it that ``NAME-token`` holds a token of the user ``name``. False where it did."""
    from accounts import actions, audit
    from accounts.models import ApiToken

    path: Path = settings.STATE_DIR / f"{name}-token"
    if ApiToken.objects.usable().with_secret(_kept(path)).filter(user__username=name).exists():
        return False
    with transaction.atomic():
        user = _operator(name)
        for old in user.api_tokens.filter(revoked_at__isnull=True, name=name):
            actions.revoke_token(audit.SYSTEM, old)
        _, secret = actions.create_token(audit.SYSTEM, user, name, scope=scope)
        write_private(path, f"{secret}\n")
    return True


#: The teams of the demo fleet use classes that have to be granted, as teams elsewhere do.
_DEMO_POLICY = """\
name: demo
about: What the teams of the demo fleet may use.
projects:
  search: {granted: [latency-sensitive-inference-build]}
"""


def ensure_demo_grants(*, is_new: bool) -> None:
    """Grant the demo's teams their classes, where nobody has written a policy.

    No query where that was done before, unless the demo ``is_new`` to the database.
    """
    from admission.policy.models import AdmissionPolicyVersion
    from policies.documents import builtin

    mark: Path = settings.STATE_DIR / "demo-grants"
    if not is_new and _says(mark, _DEMO_POLICY):
        return
    if not AdmissionPolicyVersion.objects.exists():
        texts = {"demo": _DEMO_POLICY}
        builtin.load(AdmissionPolicyVersion, texts, "admission.policy.catalog.POLICIES")
    mark.write_text(_DEMO_POLICY)


def _operator(name: str) -> User:
    """Return the user ``name``; a new one is an operator whom no password lets in."""
    from accounts import audit
    from accounts.models import User
    from accounts.roles import Role

    user, created = User.objects.get_or_create(username=name, defaults={"role": Role.OPERATOR})
    if created:
        user.set_unusable_password()
        user.save(update_fields=["password"])
        told = audit.changes(None, audit.state(user))
        audit.record(audit.SYSTEM, "user.create", name, role=user.role, **told)
    return user


def ensure_machine(name: str) -> bool:
    """See to it that this machine is in the inventory and that its agent's token works.

    Return whether there is a new token. A node that exists stays where somebody has put it.
    """
    from accounts import tokens
    from config.machine import local_gpus
    from fleet.models import Node
    from telemetry.models import Agent

    path: Path = settings.STATE_DIR / "agent-token"
    gpus = local_gpus()
    with transaction.atomic():
        node = Node.objects.filter(name=name).first() or _local_node(name, gpus)
        _add_gpus(node, gpus)
        digest = tokens.digest(_kept(path))
        if Agent.objects.usable().filter(name=name, digest=digest).exists():
            return False
        write_private(path, f"{_enroll(name)}\n")
    return True


def _enroll(name: str) -> str:
    from accounts import audit
    from telemetry.enrollment import Enrollment, enroll

    (enrolled,) = enroll(audit.SYSTEM, [Enrollment(name, nodes=(name,))], rotate=True)
    return enrolled.token


def _local_node(name: str, gpus: list[LocalGpu]) -> Node:
    from fleet.models import Node

    node = Node.objects.create(name=name, rack=_local_rack(gpus), height_u=4)
    _note_created("node", node)
    return node


def _note_created(kind: str, row: Model) -> None:
    from accounts import audit

    told = audit.changes(None, audit.state(row))
    audit.record(audit.SYSTEM, f"fleet.{kind}.create", str(row), **told)


def _local_rack(gpus: list[LocalGpu]) -> Rack:
    from fleet.models import Rack, Site

    site, is_new = Site.objects.get_or_create(name=LOCAL_SITE)
    if is_new:
        _note_created("site", site)
    gpus_w = sum(gpu.power_limit_w or UNKNOWN_GPU_W for gpu in gpus)
    # A machine whose GPUs alone may draw more than the circuit gives has a larger one.
    budget_w = CIRCUIT_W if gpus_w < CIRCUIT_W / 2 else 2 * gpus_w
    rack, is_new = Rack.objects.get_or_create(
        site=site, name=LOCAL_RACK, defaults={"budget_w": budget_w}
    )
    if is_new:
        _note_created("rack", rack)
    return rack


def _add_gpus(node: Node, gpus: list[LocalGpu]) -> None:
    from fleet.kinds import HardwareKind
    from fleet.models import Gpu, HardwareModel

    for gpu in gpus:
        model, is_new = HardwareModel.objects.get_or_create(
            name=gpu.model,
            defaults={
                "kind": HardwareKind.GPU,
                "vendor": "NVIDIA",
                "rated_w": gpu.power_limit_w or UNKNOWN_GPU_W,
                "slowdown_c": gpu.slowdown_c,
                "slowdown_mem_c": gpu.slowdown_mem_c,
                "shutdown_c": gpu.shutdown_c,
                "sm_max_mhz": gpu.sm_max_mhz,
                "mem_bytes": gpu.mem_bytes,
            },
        )
        if is_new:
            _note_created("hardware_model", model)
        row, is_new = Gpu.objects.get_or_create(
            node=node, index=gpu.index, defaults={"model": model, "uuid": gpu.uuid}
        )
        if is_new:
            _note_created("gpu", row)


def _kept(path: Path) -> str:
    # Of a damaged file nothing is found that is in force, and a new one is made.
    return path.read_text(errors="replace").strip() if path.exists() else ""
