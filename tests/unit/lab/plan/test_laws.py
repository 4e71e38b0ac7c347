"""Commands made from laws, by laws made for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from lab.plan.laws import module_command
from tests.unit.lab.plan import toys

WALK = ["walk-s", "--distance", "3km"]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(module_command("toys", toys), arguments)


def text_of(*arguments: str) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.output


def document_of(*arguments: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(text_of(*arguments, "--json"))
    return document


def refusal_of(*arguments: str) -> str:
    result = run(*arguments)
    assert result.exit_code == 2
    return result.output.splitlines()[-1]


def test_what_was_given_and_assumed_stands_before_the_answer() -> None:
    assert text_of(*WALK) == (
        "distance  3,000 m (3km)\nspeed     1.5 m/s (default)\n\nwalk  33.33 min\n"
    )


def test_laws_that_differ_in_their_unit_keep_it() -> None:
    assert {"walk-s", "walk-m", "rise", "spread"} <= module_command("toys", toys).commands.keys()


def test_json_has_units_in_its_keys_and_values_in_them() -> None:
    assert document_of(*WALK, "--speed", "3.6km/h") == {
        "law": "toys.walk_s",
        "inputs": {"distance_m": 3000.0, "speed_m_per_s": 1.0},
        "outputs": {"walk_s": 3000.0},
    }


def test_a_list_gives_a_row_for_each_value() -> None:
    assert text_of("walk-s", "--distance", "150m,30m", "--speed", "1.5,3") == (
        "distance    speed   walk\n   150 m  1.5 m/s  100 s\n    30 m    3 m/s   10 s\n"
    )
    assert document_of("walk-s", "--distance", "150m,30m")["outputs"] == {"walk_s": [100.0, 20.0]}


def test_what_does_not_vary_stands_above_the_table() -> None:
    text = text_of("walk-s", "--distance", "150m,30m")
    assert text.startswith("speed  1.5 m/s (default)\n\ndistance")


def test_temperatures_have_a_zero_and_differences_have_none() -> None:
    inputs = document_of("rise", "--warm", "300K", "--rise", "10K", "--share", "50%")["inputs"]
    assert inputs == {"warm_c": pytest.approx(26.85), "rise_c": 10.0, "share": 0.5}


def test_an_answer_of_many_kinds_is_shown_by_its_fields() -> None:
    assert text_of("spread", "--power", "1kW,3kW", "--limit", "2kW") == (
        "limit  2 kW\n"
        "name   all (default)\n"
        "\n"
        "mean        2 kW\n"
        "inner peak  3 kW\n"
        "name        all\n"
        "remarks     first\n"
        "            second\n"
        "endless     infinite\n"
        "grid        2 by 3 numbers: see --json\n"
        "\n"
        "power  over\n"
        " 1 kW    no\n"
        " 3 kW   yes\n"
    )


def test_json_has_null_for_what_is_not_finite_or_not_there() -> None:
    outputs = document_of("spread", "--power", "1kW", "--limit", "2kW", "--name", "x")["outputs"]
    assert outputs["endless_s"] is outputs["nothing"] is None
    assert (outputs["inner"], outputs["over"], outputs["name"]) == ({"peak_w": 1e3}, [False], "x")


def test_a_series_comes_from_a_column_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "run.csv"
    file.write_text("t,power\n0,700W\n1,0.9kW\n")
    outputs = document_of("spread", "--power", f"@{file}:power", "--limit", "1kW")["outputs"]
    assert outputs["mean_w"] == 800.0


def test_a_table_is_given_by_its_fields() -> None:
    table = ["--table-sizes", "1,9", "--table-shares", "100%,20%"]
    document = document_of("looked-up", "--gpus", "5", *table)
    assert document["outputs"] == {"looked_up": pytest.approx(0.6)}
    assert document["inputs"]["table"]["source"] == "the command line"


def test_a_table_that_is_not_given_is_the_default_and_said_to_be() -> None:
    assert "table shares  1, 0.5 (default)\n" in text_of("looked-up", "--gpus", "2")
    source = document_of("looked-up", "--gpus", "2")["inputs"]["table"]["source"]
    assert source == "this file"


def test_fields_that_are_not_given_stay_as_in_the_default() -> None:
    outputs = document_of("looked-up", "--gpus", "2", "--table-bend", "4W", "--deep", "yes")
    assert outputs["outputs"] == {"looked_up": 2.0}


def test_words_and_choices() -> None:
    table = ["--table-sizes", "7", "--table-shares", "1"]
    words = ["warmth", "--kinds", "a, b,a", *table]
    assert document_of(*words, "--how", "most")["outputs"] == {"warmth": 3.0}
    assert document_of(*words, "--how", "mean")["outputs"] == {"warmth": 7.0}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["walk-s"], "Error: missing: --distance (see --help)"),
        (["walk-m"], "Error: missing: --time, --speed (see --help)"),
        (["warmth"], "Error: missing: --kinds, --how, --table-sizes, --table-shares, --table-bend"),
        ([*WALK, "--speed", "0"], "Error: --speed must be finite and above 0"),
        ([*WALK, "--speed", "1e999"], "Error: --speed must be finite and above 0"),
        ([*WALK, "--speed", "5W"], "'--speed': W is not a unit of this; m/s is, such as 1 m/s"),
        (["looked-up", "--gpus", "1.5"], "Error: --gpus must be a whole number, at least 1"),
        (
            ["walk-s", "--distance", "1,2,3", "--speed", "1,2"],
            "Error: lists must be of one length: --distance has 3, --speed has 2",
        ),
        (
            ["rise", "--warm", "5", "--rise", "200", "--share", "1"],
            "Error: --rise must be at most 100, or --warm is too",
        ),
        (["looked-up", "--gpus", "1", "--table-bend", "1,2"], "one number is wanted, not a list"),
        (["warmth", "--how", "least"], "'least' is not one of mean, most"),
        (["spread", "--power", "@nowhere"], "cannot read nowhere"),
    ],
)
def test_a_refusal_names_the_option(arguments: list[str], says: str) -> None:
    assert says in refusal_of(*arguments)


def test_help_shows_formula_units_and_requirements() -> None:
    text = text_of("walk-s", "--help")
    assert "Return the time of a walk, s: d / v.\n\n  See walk_m." in text
    assert "--distance m  finite and at least 0, such as 1 m  [required]" in text
    assert "--speed m/s   finite and above 0, such as 1 m/s  [default: 1.5]" in text


def test_help_of_a_table_shows_its_defaults() -> None:
    text = " ".join(text_of("looked-up", "--help").split())
    assert "--table-shares NUMBER numbers, a list with commas, or @FILE [default: 1.0, 0.5]" in text
    assert "--deep [yes|no] [default: no]" in text


def test_a_module_lists_its_laws_without_formulas_and_units() -> None:
    text = text_of()
    assert "  walk-s     Time of a walk\n" in text
    assert "  rise       A temperature a share of a rise higher\n" in text
