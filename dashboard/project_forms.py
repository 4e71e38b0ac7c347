"""The form by which people make and change projects. The API's serializer checks what it sends."""

from __future__ import annotations

from typing import Any, ClassVar

from django.http import QueryDict

from admission.core.sharing import Stated
from admission.jobs.api.serializers import ProjectSerializer
from admission.jobs.limits import BURST_S, Waiting, limits_of, waiting_of
from admission.jobs.models import Project
from admission.jobs.projects import Use, uses
from dashboard import units
from dashboard.classes import policy_in_force
from dashboard.serializer_forms import Lines, SerializerForm, Typed

__all__ = ["ProjectForm"]


class ProjectForm(SerializerForm):
    """A project: a new one, or what is to be changed of one."""

    serializer = ProjectSerializer
    empty: ClassVar = {"name": "", "description": "", "weight": 1.0, "members": []}

    name = Typed(
        "Name", "a-z, 0-9 and . _ - between them, at most 60 characters. It is kept for good."
    )
    description = Typed("Description", "What it is for. May be empty.")
    weight = Typed(
        "Weight",
        "Of its fair share: one with weight 2 gets twice what one with 1 gets while both want"
        " it. No unit; empty: 1.",
        mode="decimal",
    )
    gpu_quota = Typed(
        "GPU quota, GPUs", "What its jobs hold at once at most; empty: no limit.", mode="numeric"
    )
    power_quota_w = Typed(
        "Power quota, W", "What its jobs reserve at once at most; empty: no limit.", mode="decimal"
    )
    members = Lines(
        "Members", "User names, one a line. They submit to it, and see its jobs whole; empty: none."
    )
    max_pending_jobs = Typed("Jobs that may wait", "", mode="numeric")
    max_pending_phases = Typed("Phases that may wait", "", mode="numeric")
    max_phases_per_job = Typed("Phases of one job", "", mode="numeric")
    submissions_per_s = Typed("Submissions, jobs a second", "", mode="decimal")

    def __init__(self, data: QueryDict | None, *, project: Project | None) -> None:
        super().__init__(data, initial=_held(project) if project else {"weight": 1.0})
        self.row = project
        self._say_usual()
        if project is not None:
            del self.fields["name"]
            self._say_now(project)

    def _say_usual(self) -> None:
        usual = limits_of(None, "project")
        for name, what in (
            ("max_pending_jobs", "Jobs with phases that wait, at once"),
            ("max_pending_phases", "Phases that wait at once, for others too"),
            ("max_phases_per_job", "At most"),
            ("submissions_per_s", f"{BURST_S:g} s' worth of them may come at once"),
        ):
            value = getattr(usual, name)
            self.fields[name].help_text = f"{what}; empty: as is usual, {value:,.12g}."

    def _say_now(self, project: Project) -> None:
        """Say beside each quota what is held of it, and where the policy states another one."""
        use = uses([project.pk]).get(project.pk, Use())
        waits = waiting_of("", project.pk)["project"]
        stated = policy_in_force().shares.projects.get(project.name, Stated())
        for name, said in _now(project, use, waits, stated).items():
            self.fields[name].help_text += f" {said}"


def _held(project: Project) -> dict[str, Any]:
    names = (name for name in ProjectForm.base_fields if name != "members")
    members = sorted(project.members.values_list("username", flat=True))
    return {**{name: getattr(project, name) for name in names}, "members": members}


def _now(project: Project, use: Use, waits: Waiting, stated: Stated) -> dict[str, str]:
    quota = project.gpu_quota if stated.gpu_quota is None else stated.gpu_quota
    gpus = f"{use.gpus_held:,.12g}"
    watts = units.kilowatts(use.reserved_w)
    most = limits_of(project, "project")
    said = {
        "gpu_quota": f"It holds {gpus} of {units.count(quota, 'GPU')} now."
        if quota is not None
        else f"It holds {gpus} {'GPU' if use.gpus_held == 1 else 'GPUs'} now.",
        "power_quota_w": f"It reserves {watts} of {units.kilowatts(project.power_quota_w)} kW now."
        if project.power_quota_w is not None
        else f"It reserves {watts} kW now.",
        "max_pending_jobs": f"{waits.jobs:,} of {most.max_pending_jobs:,.12g} wait now.",
        "max_pending_phases": f"{waits.phases:,} of {most.max_pending_phases:,.12g} wait now.",
    }
    for name, counts in (("gpu_quota", stated.gpu_quota), ("weight", stated.weight)):
        if counts is not None:
            words = f"The admission policy states {counts:,.12g}, and that counts in place of this."
            said[name] = f"{said.get(name, '')} {words}".strip()
    return said
