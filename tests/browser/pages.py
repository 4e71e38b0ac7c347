"""All pages that are looked at as a whole: where they are, and what may be wrong with each."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from django.utils import timezone

from accounts.models import User
from fleet.models import Gpu, Node, Rack
from policies.incidents.models import Incident, NotificationChannel
from policies.playbooks.models import PlaybookRun
from policies.restrictions.models import Restriction
from policies.rules.models import RuleReplay
from tests.browser.conftest import Visitor
from tests.browser.wording import read, riddles
from tests.builders.fleet import SmallFleet

__all__ = ["OF_ANY_FLEET", "Shown", "faults", "of_things"]

#: Pages that are there whatever the fleet has.
OF_ANY_FLEET = {
    "fleet": "/",
    "conditions": "/conditions/",
    "restrictions": "/restrictions/",
    "restrictions-history": "/restrictions/?show=history",
    "restrictions-new": "/restrictions/new/",
    "incidents": "/incidents/",
    "rules": "/rules/",
    "playbooks": "/playbooks/",
    "queue": "/queue/",
    "queue-running": "/queue/?state=running",
    "queue-ended": "/queue/?state=ended",
    "submit": "/jobs/_new/",
    "classes": "/classes/",
    "project-new": "/projects/_new/",
    "class": "/documents/classes/checkpoint-heavy/",
    "class-edit": "/documents/classes/checkpoint-heavy/edit/",
    "policy": "/documents/admission-policies/headroom/",
    "slos": "/slos/",
    "what-if": "/what-if/",
    "energy": "/energy/",
    "goodput": "/goodput/",
    "losses": "/goodput/losses/",
    "calendar": "/calendar/",
    "rollouts": "/rollouts/",
    "channels": "/channels/",
    "channel-new": "/channels/new/",
    "throttle": "/throttle/",
    "throttle-by-event": "/throttle/?by=events",
    "lemons": "/lemons/",
    "failures": "/failures/?by=rack",
    "agents": "/agents/",
    "search": "/search?q=oslo-",
    "users": "/users/",
    "user-new": "/users/new/",
    "account": "/account/",
}


@dataclass(frozen=True)
class Shown:
    """What the pages of one thing each are about, by default those of ``make_lively``."""

    rack: Rack
    node: Node
    gpu: Gpu
    site: str = "oslo"
    domain: str = "feed-a1"
    zone: str = "hall-1"
    link: str = "oslo/A01/uplink"
    project: str = "vision"
    job: str = "llama-ft-12"
    running: str = "vit-sweep-3"
    rule: str = "rack-hot"
    playbook: str = "cool-down"
    slo: str = "training-begins"
    rollout: str = "driver"

    @classmethod
    def of(cls, made: SmallFleet) -> Shown:
        node = made.nodes["oslo-a01-n1"]
        return cls(made.racks["oslo/A01"], node, made.gpu(node.name))


def of_things(shown: Shown) -> dict[str, str]:
    """Return the addresses of pages of one thing each, by name."""
    site, rack = shown.site, f"{shown.rack.site.name}/{shown.rack.name}"
    restriction = Restriction.objects.in_force(timezone.now()).latest("pk")
    replay = RuleReplay.objects.filter(state="running").latest("pk")
    user = User.objects.get(username="w" * 150)
    channel = NotificationChannel.objects.filter(kind="webhook").latest("pk")
    paths = {
        "heat": f"/?metric=heat&site={site}",
        "rack": f"/racks/{shown.rack.pk}/",
        "node": f"/nodes/{shown.node.pk}/",
        "gpu": f"/gpus/{shown.gpu.pk}/",
        "conditions-site": f"/conditions/{site}/",
        "domain": f"/places/power_domain/{site}/{shown.domain}/",
        "zone": f"/places/zone/{site}/{shown.zone}/",
        "link": f"/places/link/{shown.link}/",
        "what-if-asked": f"/what-if/?kind=zone&name={site}/{shown.zone}",
        "what-if-link": f"/what-if/?kind=link&name={shown.link}",
        "restriction": f"/restrictions/{restriction.pk}/",
        "incident": f"/incidents/{Incident.objects.latest('pk').pk}/",
        "run": f"/runs/{PlaybookRun.objects.latest('pk').pk}/",
        "rule": f"/rules/{shown.rule}/?old=1&new=2",
        "rule-replaying": f"/rules/{shown.rule}/?replay={replay.pk}",
        "rule-edit": f"/rules/{shown.rule}/edit/",
        "playbook": f"/playbooks/{shown.playbook}/?kind=rack&scope={rack}",
        "project": f"/projects/{shown.project}/",
        "project-change": f"/projects/_change/{shown.project}/",
        "job": f"/jobs/{shown.job}/",
        "job-running": f"/jobs/{shown.running}/",
        "job-later": "/jobs/vit-sweep-3/?phase=promote",
        "compared": "/jobs/vit-sweep-3/compared/?with=vit-sweep-3/train/1",
        "slo": f"/slos/{shown.slo}/",
        "rollout": f"/rollouts/{shown.rollout}/",
        "channel-change": f"/channels/{channel.pk}/",
        "channel-delete": f"/channels/{channel.pk}/delete/",
        "user": f"/users/{user.pk}/",
        "user-change": f"/users/{user.pk}/change/",
        "user-deactivate": f"/users/{user.pk}/deactivate/",
    }
    return {name: quote(path, safe="/?&=") for name, path in paths.items()}


def faults(visitor: Visitor) -> list[str]:
    """Return what is wrong with the page that a visitor has opened, once it is drawn."""
    page = visitor.page
    if page.locator(".chart").count():
        page.wait_for_load_state("networkidle")  # its data is there, and drawn
    found = visitor.inaccessible() + riddles(read(page)) + visitor.complaints()
    if (px := visitor.overflow_px()) > 0:
        found.append(f"wider than the window by {px} px")
    return found + [f"columns of {table} are out of sight" for table in visitor.cut_tables()]
