from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from admission.core import snapshot
from admission.core.allocation import reservation
from admission.core.controlling import Unmanaged
from admission.core.response import respond
from headroom import documents
from lab.scenarios.policies import FilledTo, PolicyError, load_policy
from lab.world.policy import Headroom, builtin_playbooks, builtin_rules
from policies.playbooks import builtin as builtin_playbook_texts
from policies.rules import builtin as builtin_rule_texts

_REFERENCE = Path(__file__).resolve().parents[4] / "docs/reference"
PAGE = (_REFERENCE / "policy-folders.md").read_text()
#: The same document on a server: the numbers stand there.
ON_A_SERVER = (_REFERENCE / "admission-policy.md").read_text()


def policy_folder(
    tmp_path: Path, text: str = "name: mine\n", *, more: dict[str, str] | None = None
) -> Path:
    (tmp_path / "policy.yaml").write_text(text)
    for name, content in (more or {}).items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
    return tmp_path


def test_without_a_folder_it_is_the_built_in_policy() -> None:
    policy = load_policy(None)
    assert policy.name == "headroom"
    assert policy.rules == builtin_rules()
    assert dict(policy.playbooks) == builtin_playbooks()


def test_an_empty_folder_differs_in_its_name_alone(tmp_path: Path) -> None:
    policy, own = load_policy(policy_folder(tmp_path)), load_policy(None)
    assert (policy.name, policy.approach.name) == ("mine", "mine")
    assert (policy.rules, policy.tuning, policy.response) == (own.rules, own.tuning, own.response)
    flags = [each.name for each in fields(Headroom) if each.name != "name"]
    assert all(getattr(policy.approach, name) == getattr(own.approach, name) for name in flags)


def test_documents_replace_are_added_and_are_left_out(tmp_path: Path) -> None:
    rule = builtin_rule_texts.texts()["rack-power"]
    playbook = builtin_playbook_texts.texts()["power-cap"]
    folder = policy_folder(
        tmp_path,
        "name: mine\nrules: {without: [feed-power]}\nplaybooks: {builtin: false}\n",
        more={
            "rules/a.yaml": rule.replace("power_drawn_use > 1.0", "power_drawn_use > 0.95"),
            "rules/b.yaml": rule.replace("name: rack-power", "name: rack-power-2"),
            "playbooks/a.yaml": playbook,
        },
    )
    policy = load_policy(folder)
    names = [rule.name for rule in policy.rules]
    assert len(names) == len(set(names)) == len(builtin_rules())
    assert "feed-power" not in names
    assert "rack-power-2" in names
    mine = next(rule for rule in policy.rules if rule.name == "rack-power")
    assert mine != next(rule for rule in builtin_rules() if rule.name == "rack-power")
    assert list(policy.playbooks) == ["power-cap"]


def test_numbers_are_set_and_whole_ones_stay_whole(tmp_path: Path) -> None:
    text = """
name: mine
admission:
  fill_share: 1.3
  responds: false
  tuning: {depth: 50, stagger_share: 0.5}
  reserve: {margin: 0.2}
response: {sustain_s: 60}
loop: {shed_after_s: 10}
"""
    policy = load_policy(policy_folder(tmp_path, text))
    assert (policy.tuning.depth, policy.tuning.stagger_share) == (50, 0.5)
    assert isinstance(policy.tuning.depth, int)
    assert (policy.reserve.margin, policy.response.sustain_s) == (0.2, 60.0)
    assert policy.shed_after_s == 10.0
    assert isinstance(policy.approach, FilledTo)
    assert (policy.approach.fill_share, policy.approach.responds) == (1.3, False)


def test_the_controller_holds_running_load_unless_it_is_switched_off(tmp_path: Path) -> None:
    said = "unmanaged: {capped: false, lowest_speed: 0.8}\n"
    policy = load_policy(policy_folder(tmp_path, f"name: mine\n{said}"))
    assert policy.approach.controls
    assert policy.unmanaged == Unmanaged(is_capped=False, lowest_speed=0.8)
    off = load_policy(policy_folder(tmp_path, "name: mine\ncontroller: off\n"))
    assert not off.approach.controls


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nam: mine\n", "unknown field `nam`"),
        ("name: [\n", "policy.yaml: "),
        ("name: a\nresponse: {sustain: 1}\n", "response.sustain: .*do you mean sustain_s"),
        ("name: a\nloop: {name: 1}\n", r"loop\.name: .*unknown field `name`"),
        ("name: a\nadmission: {tuning: {x: 1}}\n", r"admission\.tuning\.x: there is no x"),
        ("name: a\nrules: {without: [rack-powr]}\n", "rules.without: .*do you mean rack-power"),
        ("name: a\nadmission: {fill_share: 0}\n", "> 0.0"),
    ],
)
def test_what_is_wrong_is_told_with_the_file_and_a_way_out(
    tmp_path: Path, text: str, told: str
) -> None:
    with pytest.raises(PolicyError, match=told) as caught:
        load_policy(policy_folder(tmp_path, text))
    assert str(tmp_path / "policy.yaml") in str(caught.value)


@pytest.mark.parametrize("folder", ["rules", "playbooks"])
def test_a_document_that_is_wrong_is_told_by_its_file(tmp_path: Path, folder: str) -> None:
    path = policy_folder(tmp_path, more={f"{folder}/bad.yaml": "name: [\n"})
    with pytest.raises(PolicyError, match=rf"{folder}/bad\.yaml"):
        load_policy(path)


def test_the_page_describes_every_number(tmp_path: Path) -> None:
    rows = re.findall(r"^\| (.*)", PAGE + ON_A_SERVER, re.M)
    described = set(re.findall(r"`(?:\w+\.)?(\w+)`", "".join(rows)))
    known = {
        each.name
        for tuned in (snapshot.Tuning, reservation.Rules, respond.Tuning)
        for each in fields(tuned)
    }
    assert known <= described
    (example,) = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert load_policy(policy_folder(tmp_path, example)).name == "steady-2"
    assert set(documents.read(example).value) - {"admission"} <= described
