"""``headroom plan`` as a whole: what it offers, and how it ends."""

from __future__ import annotations

import functools
import json
import subprocess
import sys

import pytest
from click.testing import CliRunner, Result

import physics
from headroom.cli import main
from lab.plan.commands import NAMES, command_of
from lab.plan.laws import LawCommand, laws_of
from lab.plan.options import Option, options_of

LAWS = [(module, name) for module in physics.__all__ for name in laws_of(getattr(physics, module))]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["plan", *arguments])


@functools.cache
def law_commands() -> dict[tuple[str, str], LawCommand]:
    return {
        (module, name): command
        for module in NAMES
        for name, command in getattr(command_of(module), "commands", {}).items()
        if isinstance(command, LawCommand)
    }


def test_it_lists_the_modules_and_a_module_lists_its_laws() -> None:
    assert all(f"\n  {module} " in run().output for module in physics.__all__)
    assert run().exit_code == run("comm").exit_code == 0
    assert "\n  ring-all-reduce  " in run("comm").output


def test_every_law_has_a_command() -> None:
    assert len(law_commands()) == len(LAWS)


@pytest.mark.parametrize(("module", "name"), LAWS)
def test_options_of_a_law_are_distinct_without_their_units(module: str, name: str) -> None:
    flags = [option.flag for option in options_of(getattr(getattr(physics, module), name))]
    assert len(flags) == len(set(flags))


@pytest.mark.parametrize(("module", "command"), law_commands())
def test_a_command_answers_or_refuses_but_never_breaks(module: str, command: str) -> None:
    options = options_of(law_commands()[module, command].law)
    for value in ("0", "0.5", "1", "100", "0.1,0.5,0.9", "1,2,3"):
        given = [text for option in options for text in (option.flag, plausible(option, value))]
        for json_option in ([], ["--json"]):
            result = run(module, command, *given, *json_option)
            assert result.exit_code in (0, 2), result.exception
            assert result.exit_code == 0 or len(result.output.splitlines()) == 1


def plausible(option: Option, value: str) -> str:
    """Return a text that the option can read, at least in kind."""
    if option.bound:
        return value.partition(",")[0] if option.field and not option.bound.series else value
    return next(iter(option.choices), "word")


@pytest.mark.parametrize("module", physics.__all__)
def test_help_of_every_command_can_be_had(module: str) -> None:
    for name in run(module).output.partition("Commands:")[2].split():
        if (module, name) in law_commands():
            assert run(module, name, "--help").exit_code == 0


def test_a_line_rate_makes_the_time_of_an_all_reduce() -> None:
    result = run(
        *["comm", "ring-all-reduce", "--ranks", "256", "--message", "14GB"],
        *["--link", "400Gbit/s", "--latency", "5us"],
    )
    assert result.output.endswith("\n\nring all reduce  560.4 ms\n")


def test_a_diagnosis_shows_its_arithmetic() -> None:
    arguments = ["--throughput-ratio", "2.5", "--reference-gpus", "1024", "--gpus", "4096"]
    text = run("diagnose", "scaling", *arguments).output
    assert all(f"\n{part}:" in text for part in ("constraint", "verdict", "lever"))
    assert "\nrelative efficiency = r · N0 / N = 2.5 · 1,024 / 4,096 = 62.5 %\n" in text
    document = json.loads(run("diagnose", "scaling", *arguments, "--json").output)
    assert document["outputs"]["figures"]["absolute_efficiency"] == 0.3125


def test_the_catalogue_lists_what_it_holds() -> None:
    text = run("hardware", "list").output
    assert text.split()[:2] == ["accelerators", "H100"]
    assert "InfiniBand NDR" in json.loads(run("hardware", "list", "--json").output)["links"]


def test_an_entry_is_shown_with_its_profiles_side_by_side() -> None:
    lines = run("hardware", "show", "h100").output.splitlines()
    assert lines[0].split() == ["figure", "textbook", "current"]
    assert lines[1].split() == ["peak_bf16_flops", "989", "TFLOP/s", "989.4", "TFLOP/s"]


def test_an_entry_of_one_profile_is_shown_with_its_sources() -> None:
    lines = run("hardware", "show", "h100", "--profile", "textbook").output.splitlines()
    assert lines[0].split() == ["figure", "value", "as", "of", "source"]
    assert all("Fleet Foundations" in line for line in lines[1:])


def test_an_entry_as_json_is_in_si_units() -> None:
    document = json.loads(run("hardware", "show", "h100", "--json").output)
    assert document["textbook"]["tdp_w"] == document["current"]["tdp_w"] == 700.0
    assert document["current"]["source"]["publisher"] == "NVIDIA"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--foo"], "No such option '--foo'."),
        (["abacus"], "No such command 'abacus'."),
        (["comm", "abacus"], "No such command 'abacus'."),
        (["comm", "transfer", "--foo", "1"], "No such option '--foo'."),
        (["comm", "transfer", "--link"], "Option '--link' requires an argument."),
        (["comm", "transfer", "--link", "5W"], "'--link': W is not a unit of this; B/s is, such"),
        (["comm", "transfer", "--link", "5"], "missing: --message, --latency (see --help)"),
        (["hardware", "show", "H10"], "the catalogue has no H10; did you mean H100?"),
        (["hardware", "show", "abacus9000"], "the catalogue has no abacus9000"),
        (["hardware", "show"], "Missing argument 'NAME'."),
    ],
)
def test_wrong_use_is_told_in_one_line(arguments: list[str], says: str) -> None:
    result = run(*arguments)
    (line,) = result.output.splitlines()
    assert (result.exit_code, line.startswith("Error: "), says in line) == (2, True, True)


def in_a_new_interpreter(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    return done.stdout + done.stderr


def test_help_of_headroom_loads_no_law() -> None:
    output = in_a_new_interpreter(
        "import sys, headroom.cli\n"
        "try: headroom.cli.main(['--help'])\n"
        "except SystemExit: print({'numpy', 'pint', 'scipy', 'physics'} & set(sys.modules))"
    )
    assert output.splitlines()[-1] == "set()"


@pytest.mark.parametrize("missing", ["numpy", "pint"])
def test_a_missing_extra_is_told_in_one_line(missing: str) -> None:
    output = in_a_new_interpreter(
        f"import sys; sys.modules['{missing}'] = None\n"
        "from headroom.cli import main; main(['plan', 'comm'])"
    )
    assert output == "Error: headroom plan needs: pip install 'headroom[plan]'\n"


@pytest.mark.parametrize("command", ["plan", "matrix"])
def test_a_distribution_that_is_missing_is_told_in_one_line(command: str) -> None:
    bare = "import sys; sys.modules['lab'] = None\nfrom headroom.cli import main; "
    needs = f"pip install 'headroom[{command}]'"
    output = in_a_new_interpreter(f"{bare}main(['{command}', 'run', '--standard'])")
    assert output == f"Error: headroom {command} needs: {needs}\n"
    assert needs in in_a_new_interpreter(f"{bare}main(['--help'])")


def test_a_law_whose_library_is_missing_tells_so_in_one_line() -> None:
    output = in_a_new_interpreter(
        "import sys; sys.modules['scipy'] = sys.modules['scipy.special'] = None\n"
        "from headroom.cli import main\n"
        "main(['plan', 'reliability', 'estimate-mtbf', '--failures', '3', '--exposure', '9h'])"
    )
    assert output == "Error: headroom plan needs: pip install 'headroom[plan]'\n"
