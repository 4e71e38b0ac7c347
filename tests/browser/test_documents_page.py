"""The pages that documents of all kinds share, as those who write and review them use them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from accounts.roles import Role
from admission.policy.catalog import POLICIES
from admission.policy.models import AdmissionPolicyVersion, ShadowDecision, ShadowProgress
from policies.documents import life
from policies.documents.models import States
from tests.browser.chromium import DESKTOP, PHONE
from tests.browser.conftest import Visits
from tests.builders.documents import put_in_force
from tests.builders.fleet import SmallFleet
from tests.builders.jobs import make_job


def make_shadow() -> AdmissionPolicyVersion:
    """Have a shadow that would have decided otherwise of two jobs."""
    put_in_force(POLICIES, "name: steady\nadmission: {tuning: {depth: 500}}\n")
    draft = life.draft(POLICIES, "eva", "name: steady\nadmission: {tuning: {depth: 1}}\n")
    shadow = life.promote(POLICIES, "eva", draft, States.SHADOW)
    now = timezone.now()
    ShadowProgress.objects.create(
        version=shadow, since=now - timedelta(hours=5), asked_at=now, cycles=8_712, took_s=0.1
    )
    for number, kind in enumerate(("wait", "reason")):
        phase = make_job(f"llama-ft-{number}").phases.get()
        ShadowDecision.objects.create(
            version=shadow, phase=phase, kind=kind, cycles=12, last_at=now,
            first_at=now - timedelta(hours=2),
            decided="begins on 64 GPUs in oslo/A01, oslo/A02, oslo/B01 and others at 550 W per GPU",
            otherwise="needs 41.2 kW on power_domain oslo/b2, which has 36.8 kW: short 4.4 kW",
        )  # fmt: skip
    return shadow


def test_a_class_is_written_and_its_faults_shown_while_typing(
    visits: Visits, small: SmallFleet
) -> None:
    visitor = visits(Role.OPERATOR)
    page = visitor.open("/classes/")
    page.locator("#class-checkpoint-heavy-versions").click()
    expect(page.locator("h1")).to_contain_text("it counts as Headroom brings it")
    page.get_by_role("link", name="Write the next version").click()
    text = page.get_by_label("The text, in YAML")
    good = text.input_value()
    text.fill(f"{good}colour: red\n")
    expect(page.get_by_text("unknown field")).to_be_visible()
    visitor.check_accessible()
    text.fill(good.replace("priority: ", "priority: 1"))
    expect(page.get_by_text("It can be used.")).to_be_visible()
    page.get_by_role("button", name="Keep as a draft").click()
    expect(page.get_by_text("you wrote it: somebody else has to let it count")).to_be_visible()
    reviewer = visits(Role.OPERATOR)
    other = reviewer.open("/documents/classes/checkpoint-heavy/")
    other.get_by_role("button", name="Make v1 active").click()
    expect(other.locator("h1")).to_contain_text("v1 is active")
    expect(other.get_by_text("checkpoint-heavy v1 is active now")).to_be_visible()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_a_shadow_shows_each_job_that_it_would_have_decided_otherwise(
    visits: Visits, small: SmallFleet, size: tuple[int, int], theme: str
) -> None:
    shadow = make_shadow()
    visitor = visits(Role.OPERATOR, size=size, theme=theme)
    page = visitor.open("/documents/admission-policies/steady/")
    title = page.get_by_role("heading", name=f"What v{shadow.number} would have decided")
    expect(title).to_be_visible()
    expect(page.get_by_text("2 jobs of 2 otherwise.")).to_be_visible()
    expect(page.get_by_role("link", name="llama-ft-1")).to_be_visible()
    visitor.check_accessible()
    assert visitor.overflow_px() <= 0
