from __future__ import annotations

import re

import pytest

from physics.errors import ImpossibleArgumentError, PhysicsError, UnknownKeyError
from physics.goodput import TEXTBOOK_BUDGET
from physics.hardware import CURRENT, PROFILES, TEXTBOOK, Entry, Profile
from physics.hardware.reading import SECTIONS
from physics.scaling import TEXTBOOK_TABLE_5
from physics.units import unit_of
from tests.data_sets import REPOSITORY

#: Every figure that the textbook states and a newer source states otherwise: (textbook, current).
KNOWN_DIFFERENCES = {
    "accelerators.H100.peak_bf16_flops": (989e12, 989.4e12),
    "accelerators.B200.memory_bytes": (192e9, 180e9),
    "accelerators.MI300X.peak_bf16_flops": (1307e12, 1307.4e12),
    "accelerators.TPU v6.memory_bytes_per_s": (1.6e12, 1.638e12),
    "links.Infinity Fabric.per_direction_bytes_per_s": (445e9, 448e9),
    "links.Infinity Fabric.total_bytes_per_s": (890e9, 896e9),
    "links.ICI v6e.per_direction_bytes_per_s": (1000e9, 400e9),
    "links.ICI v6e.total_bytes_per_s": (2000e9, 800e9),
    "links.PCIe Gen5 x16.per_direction_bytes_per_s": (64e9, 63.01538e9),
    "links.PCIe Gen5 x16.total_bytes_per_s": (128e9, 126.03077e9),
    "pue_references.industry average.pue": (1.40, 1.54),
}
#: Figures of dimension one: their names need no unit.
DIMENSIONLESS = {"pue", "mfu", "mfu_low", "mfu_high", "gpus", "nodes", "gpus_per_node", "ranks"}
DIMENSIONLESS |= {"parameters", "exponent", "exponent_error", "most"}
DIMENSIONLESS |= {"compute_slices", "memory_slices", "gpu_compute_slices", "gpu_memory_slices"}


def entries_of(profile: Profile) -> list[Entry]:
    return [entry for section in SECTIONS for entry in profile.section(section).values()]


@pytest.mark.parametrize("name", ["textbook", "current"])
def test_every_figure_has_a_dated_source(name: str) -> None:
    for entry in entries_of(PROFILES[name]):
        assert entry.source.document
        for figure in entry.figures():
            assert figure.source.document, f"{entry.name}.{figure.name}"
            assert figure.source.publisher
            assert re.fullmatch(r"20\d\d(-[01]\d)?", figure.source.as_of)


@pytest.mark.parametrize("name", ["textbook", "current"])
def test_a_source_names_a_figure_that_the_entry_holds(name: str) -> None:
    for entry in entries_of(PROFILES[name]):
        held = {figure.name for figure in entry.figures()}
        assert set(entry.sources) <= held, entry.name


@pytest.mark.parametrize("name", ["textbook", "current"])
def test_reference_tables_are_those_that_the_laws_take(name: str) -> None:
    profile = PROFILES[name]
    table = profile.efficiency_table("training").table()
    assert (table.sizes, table.efficiencies) == (
        TEXTBOOK_TABLE_5.sizes,
        TEXTBOOK_TABLE_5.efficiencies,
    )
    assert profile.overhead_budget("training").budget() == TEXTBOOK_BUDGET
    assert profile.figure("efficiency_tables.training.efficiency_1024") == 0.5


def test_tables_are_overridden_like_everything_else() -> None:
    ours = CURRENT.with_toml("""
        [efficiency_tables.training]
        sizes = [8, 4096]
        efficiencies = [0.99, 0.8]
        [overhead_budgets.training]
        recovery_share = 0.04
        maintenance_share = 0
    """)
    assert ours.efficiency_table("training").table().sizes == (8, 4096)
    budget = ours.overhead_budget("training").budget()
    assert (budget.recovery_share, budget.maintenance_share) == (0.04, 0.0)
    assert budget.checkpoint_share == TEXTBOOK_BUDGET.checkpoint_share


@pytest.mark.parametrize("name", ["textbook", "current"])
def test_every_figure_says_its_unit_in_its_name(name: str) -> None:
    for address in PROFILES[name].addresses():
        figure = address.rpartition(".")[2]
        bare = figure.endswith("_share") or figure.startswith("efficiency_")
        assert unit_of(figure) or bare or figure in DIMENSIONLESS, address


@pytest.mark.parametrize("name", ["textbook", "current"])
def test_every_bandwidth_of_a_link_says_whether_it_is_per_direction(name: str) -> None:
    for link in PROFILES[name].links.values():
        rates = {each.name for each in link.figures() if each.name.endswith("bytes_per_s")}
        assert rates in (set(), {"per_direction_bytes_per_s", "total_bytes_per_s"})


@pytest.mark.parametrize("name", ["textbook", "current"])
def test_accelerators_name_links_of_their_profile(name: str) -> None:
    profile = PROFILES[name]
    for accelerator in profile.accelerators.values():
        for link in (accelerator.link, accelerator.host_link):
            assert link is None or link in profile.links


@pytest.mark.parametrize("name", ["textbook", "current"])
def test_no_two_entries_of_a_section_answer_to_one_name(name: str) -> None:
    for section in SECTIONS:
        for entry in PROFILES[name].section(section).values():
            for known in (entry.name, *entry.aliases):
                assert PROFILES[name].entry(section, known) is entry


def test_the_catalogue_holds_what_fleets_are_made_of() -> None:
    wanted = {"H100", "H200", "B200", "A100", "L40S", "V100", "MI300X", "TPU v5p", "TPU v6"}
    assert wanted <= set(CURRENT.accelerators)
    for accelerator in CURRENT.accelerators.values():
        assert accelerator.peak_flops
        assert accelerator.memory_bytes
        assert accelerator.memory_bytes_per_s


def test_what_no_source_states_is_absent() -> None:
    assert TEXTBOOK.accelerator("H100").memory_bytes is None
    assert CURRENT.accelerator("TPU v6").tdp_w is None
    assert CURRENT.accelerator("V100").peak_bf16_flops is None
    assert CURRENT.accelerator("V100").peak_flops == 125e12


def test_the_textbook_marks_its_estimates() -> None:
    v6 = TEXTBOOK.accelerator("TPU v6")
    assert v6.tdp_w == 600.0
    assert v6.source_of("tdp_w").estimated
    assert not v6.source_of("memory_bytes").estimated
    assert TEXTBOOK.link("TPU v6 ICI").source_of("per_direction_bytes_per_s").estimated


def test_textbook_and_current_differ_only_where_a_newer_source_does() -> None:
    found = {each.address: (each.mine, each.theirs) for each in TEXTBOOK.differences(CURRENT)}
    assert set(found) == set(KNOWN_DIFFERENCES)
    for address, figures in KNOWN_DIFFERENCES.items():
        assert found[address] == pytest.approx(figures, rel=1e-6), address


def test_the_page_shows_every_difference_side_by_side() -> None:
    page = (REPOSITORY / "docs" / "reference" / "physics" / "hardware.md").read_text()
    shown = re.findall(r"^\| `([^`]+)` \| ([\d.,]+)[^|]*\| ([\d.,]+)", page, re.M)
    found = {address: (figure(textbook), figure(current)) for address, textbook, current in shown}
    assert set(found) == set(KNOWN_DIFFERENCES)
    for address, (textbook, current) in KNOWN_DIFFERENCES.items():
        # The page has readable units, so the ratio tells whether the figures are right.
        assert found[address][1] / found[address][0] == pytest.approx(current / textbook, rel=1e-4)


def figure(text: str) -> float:
    return float(text.replace(",", ""))


def test_a_profile_does_not_differ_from_itself() -> None:
    assert not CURRENT.differences(CURRENT)


def test_the_total_of_a_link_is_both_directions() -> None:
    nvlink = CURRENT.link("NVLink 4.0")
    assert nvlink.printed == "total"
    assert nvlink.per_direction_bytes_per_s == 450e9
    assert nvlink.total_bytes_per_s == 900e9
    assert CURRENT.link("TCP/IP").total_bytes_per_s is None


@pytest.mark.parametrize("name", ["h100", "H100", "H 100", " H100 sxm ", "nvidia-h100-80gb-hbm3"])
def test_names_are_found_in_any_case_and_by_alias(name: str) -> None:
    assert CURRENT.accelerator(name) is CURRENT.accelerators["H100"]
    assert CURRENT.find(name) is CURRENT.accelerators["H100"]


def test_every_section_has_its_look_up() -> None:
    found = {
        "accelerators": CURRENT.accelerator("b200"),
        "power_curves": CURRENT.power_curve("Tesla V100-PCIE-32GB"),
        "mig_profiles": CURRENT.mig_profiles_of("NVIDIA H100 80GB HBM3")["1g.10gb"],
        "links": CURRENT.link("ib ndr"),
        "racks": CURRENT.rack("nvl72"),
        "cooling_kinds": CURRENT.cooling_kind("Air"),
        "pue_references": CURRENT.pue_reference("typical"),
        "components": CURRENT.component("gpu"),
        "clusters": CURRENT.cluster("dgx h100 superpod"),
        "workloads": CURRENT.workload("7b"),
        "references": CURRENT.reference("training"),
        "efficiency_tables": CURRENT.efficiency_table("Training"),
        "overhead_budgets": CURRENT.overhead_budget("Training"),
    }
    assert set(found) == set(SECTIONS)
    for section, entry in found.items():
        assert CURRENT.section(section)[entry.name] is entry


@pytest.mark.parametrize(("wrong", "closest"), [("H10O", "H100"), ("mi300", "MI300X")])
def test_an_unknown_name_is_refused_with_the_closest(wrong: str, closest: str) -> None:
    with pytest.raises(UnknownKeyError, match=f"did you mean {closest}") as refused:
        CURRENT.accelerator(wrong)
    assert (refused.value.key, refused.value.closest) == (wrong, closest)


def test_a_name_like_no_other_is_refused_with_all_there_are() -> None:
    with pytest.raises(UnknownKeyError, match="traditional, AI") as refused:
        TEXTBOOK.rack("zzzzzz")
    assert refused.value.closest is None


def test_an_address_leads_to_a_figure() -> None:
    assert CURRENT.figure("accelerators.h100.tdp_w") == 700.0
    assert CURRENT.figure("links.NVLink 4.0.total_bytes_per_s") == 900e9
    assert CURRENT.figure("pue_references.typical.pue") == 1.54
    for address, value in CURRENT.addresses().items():
        assert CURRENT.figure(address) == value


@pytest.mark.parametrize(
    ("address", "key"),
    [
        ("accelerator.H100.tdp_w", "accelerator"),
        ("accelerators.H1000.tdp_w", "H1000"),
        ("accelerators.H100.tdp", "tdp"),
        ("accelerators.TPU v6.tdp_w", "tdp_w"),
        ("accelerators", ""),
    ],
)
def test_a_wrong_address_is_refused_with_the_part_that_is_wrong(address: str, key: str) -> None:
    with pytest.raises(UnknownKeyError) as refused:
        CURRENT.figure(address)
    assert refused.value.key == key


def test_an_override_makes_another_profile() -> None:
    ours = CURRENT.with_overrides({"accelerators": {"h100": {"tdp_w": 650}}}, name="ours")
    assert ours.accelerator("H100").tdp_w == 650.0
    assert CURRENT.accelerator("H100").tdp_w == 700.0
    assert (ours.name, CURRENT.name) == ("ours", "current")
    assert ours.accelerator("H100").peak_bf16_flops == 989.4e12
    assert [each.address for each in CURRENT.differences(ours)] == ["accelerators.H100.tdp_w"]


def test_an_overridden_figure_loses_the_vendors_source() -> None:
    ours = CURRENT.with_overrides({"accelerators": {"H100": {"tdp_w": 650}}})
    assert ours.accelerator("H100").source_of("tdp_w").publisher == "the user"
    assert ours.accelerator("H100").source_of("memory_bytes").publisher == "NVIDIA"


def test_an_override_may_bring_its_source() -> None:
    source = {"document": "acceptance test", "publisher": "us", "as_of": "2026-10"}
    ours = CURRENT.with_overrides({"links": {"NDR": {"latency_s": 2e-6, "source": source}}})
    link = ours.link("NDR")
    assert (link.latency_s, link.source_of("latency_s").document) == (2e-6, "acceptance test")


def test_an_override_in_toml_reads_like_one_in_python() -> None:
    text = "[accelerators.H100]\ntdp_w = 650\n[links.'NVLink 4.0']\nlatency_s = 1e-6\n"
    ours = CURRENT.with_toml(text)
    assert ours.accelerator("H100").tdp_w == 650.0
    assert ours.link("NVLink 4.0").latency_s == 1e-6


def test_a_new_entry_with_a_source_is_added() -> None:
    ours = CURRENT.with_toml("""
        [accelerators.B300]
        vendor = "NVIDIA"
        model = "HGX B300"
        tdp_w = 1400
        link = "NVLink 5.0"
        source = {document = "our purchase order", publisher = "us", as_of = "2026-10"}
    """)
    assert ours.accelerator("b300").tdp_w == 1400.0
    assert ours.accelerator("b300").source_of("tdp_w").publisher == "us"
    assert "B300" not in CURRENT.accelerators


@pytest.mark.parametrize(
    ("overrides", "key", "closest"),
    [
        ({"acelerators": {}}, "acelerators", "accelerators"),
        ({"accelerators": {"H10O": {"tdp_w": 650}}}, "H10O", "H100"),
        ({"accelerators": {"H100": {"tdp": 650}}}, "tdp", "tdp_w"),
        ({"accelerators": {"H100": {"name": "H101"}}}, "name", None),
        ({"racks": {"AI": {"power_w": 8e4, "source": {"documnt": ""}}}}, "documnt", "document"),
    ],
)
def test_an_unknown_key_is_refused_with_the_closest(
    overrides: dict[str, object], key: str, closest: str | None
) -> None:
    with pytest.raises(UnknownKeyError) as refused:
        CURRENT.with_overrides(overrides)
    assert (refused.value.key, refused.value.closest) == (key, closest)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 0.0, "700 W", True, None])
def test_an_impossible_figure_is_refused_by_address(value: object) -> None:
    with pytest.raises(ImpossibleArgumentError) as refused:
        CURRENT.with_overrides({"accelerators": {"H100": {"tdp_w": value}}})
    assert refused.value.argument == "accelerators.H100.tdp_w"


@pytest.mark.parametrize(
    "overrides",
    [
        {"accelerators": 5},
        {"accelerators": {"H100": 700}},
        {"accelerators": {"H100": {"vendor": 5}}},
        {"links": {"NDR": {"printed": "both"}}},
        {"clusters": {"TPU v5p pod": {"gpus": 8960.5}}},
        {"efficiency_tables": {"training": {"sizes": 8}}},
        {"efficiency_tables": {"training": {"sizes": [8, 16]}}},
        {"efficiency_tables": {"training": {"efficiencies": [0.5, 0.6, 0.7, "high"]}}},
        {"overhead_budgets": {"training": {"recovery_share": 1.5}}},
        {"overhead_budgets": {"training": {"recovery_share": -0.5}}},
        {"pue_references": {"legacy": {"pue": 0.9}}},
        {"references": {"training": {"mfu": 50}}},
        {"racks": {"AI": {"power_w": 8e4, "source": "me"}}},
        {"racks": {"AI": {"power_w": 8e4, "source": {"document": "only"}}}},
        {"racks": {"new": {"source": {"document": "d", "publisher": "p", "as_of": "2026"}}}},
    ],
)
def test_an_override_of_the_wrong_form_is_refused(overrides: dict[str, object]) -> None:
    with pytest.raises(ImpossibleArgumentError):
        CURRENT.with_overrides(overrides)


def test_text_that_is_no_toml_is_refused() -> None:
    with pytest.raises(PhysicsError, match="TOML"):
        CURRENT.with_toml("accelerators: {}")


def test_profiles_are_values() -> None:
    assert CURRENT.with_overrides({}) == CURRENT
    assert CURRENT.with_overrides({"accelerators": {"H100": {"tdp_w": 1}}}) != CURRENT
