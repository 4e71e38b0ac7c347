from __future__ import annotations

from pathlib import Path

import pytest

from lab.plan.options import EXAMPLES
from lab.plan.quantities import UnreadableError, read_list, read_number, read_words
from physics.hardware import CURRENT, TEXTBOOK
from physics.units import SYMBOLS


@pytest.mark.parametrize(
    ("text", "symbol", "number"),
    [
        ("400Gbit/s", "B/s", 50e9),
        ("400 Gbps", "B/s", 50e9),
        ("50GB/s", "bit/s", 400e9),
        ("80GiB", "B", 80 * 2**30),
        ("700W", "W", 700.0),
        ("0.7 kW", "W", 700.0),
        ("700", "W", 700.0),
        ("9.8MW", "kW", 9800.0),
        ("5us", "s", 5e-6),
        ("5µs", "s", 5e-6),
        ("50000h", "s", 1.8e8),
        ("1.5 years", "s", 1.5 * 365 * 86400),
        ("90min", "h", 1.5),
        ("989TFLOP/s", "FLOP/s", 989e12),
        ("989TFLOPS", "FLOP/s", 989e12),
        ("3.6MJ", "kWh", 1.0),
        ("25", "°C", 25.0),
        ("25C", "°C", 25.0),
        ("25 °C", "°C", 25.0),
        ("-5C", "°C", -5.0),
        ("298.15K", "°C", 25.0),
        ("0.1K/W", "°C/W", 0.1),
        ("4.18kJ/(kg K)", "J/(kg °C)", 4180.0),
        ("120/s", "1/s", 120.0),
        ("120Hz", "1/s", 120.0),
        ("60/min", "1/s", 1.0),
        ("$0.08/kWh", "USD/kWh", 0.08),
        ("80 USD/MWh", "USD/kWh", 0.08),
        ("60L/min", "L/s", 1.0),
        ("1000L/s", "m³/s", 1.0),
        ("2m^3/s", "m³/s", 2.0),
        ("350g/kWh", "kg/kWh", 0.35),
        ("8192", None, 8192.0),
        ("100_000", None, 100_000.0),
        ("8.03B", None, 8.03e9),
        ("7e9", None, 7e9),
        ("24k", None, 24_000.0),
        ("15T", None, 15e12),
        ("38%", None, 0.38),
        (".5", None, 0.5),
    ],
)
def test_a_number_with_its_unit_is_read_exactly(
    text: str, symbol: str | None, number: float
) -> None:
    assert read_number(text, symbol) == number


def test_a_difference_of_temperatures_has_no_zero() -> None:
    assert read_number("10K", "°C", difference=True) == 10.0
    assert read_number("10C", "°C", difference=True) == 10.0
    assert read_number("10K", "°C") == -263.15


@pytest.mark.parametrize(
    ("text", "symbol", "says"),
    [
        ("700W", "B/s", "W is not a unit of this; B/s is"),
        ("14GB", "FLOP", "GB is not a unit of this; FLOP is"),
        ("14GB", "token/s", "GB is not a unit of this"),
        ("10FLOP", "FLOP/s", "FLOP is not a unit of this"),
        ("5 USD", "W", "USD is not a unit of this"),
        ("3 furlong", "m", "'furlong' is not a known unit; m is wanted"),
        ("3W;", "W", "'W;' is not a known unit"),
        ("3 (", "W", "is not a known unit"),
        ("3m^3^3^3", "m", "is not a known unit"),
        ("3 W**999999999", "W", "is not a known unit"),
        ("7W", None, "has a unit, and a plain number is wanted"),
        ("nan", "W", "is not a number"),
        ("inf", None, "is not a number"),
        ("", "W", "is not a number"),
        ("1 2", "W", "is not a known unit"),
    ],
)
def test_what_is_no_number_in_this_unit_is_refused(
    text: str, symbol: str | None, says: str
) -> None:
    with pytest.raises(UnreadableError) as refused:
        read_number(text, symbol)
    assert says in str(refused.value)


@pytest.mark.parametrize("symbol", sorted(set(SYMBOLS.values())))
def test_every_unit_of_a_name_can_be_written_and_so_can_its_example(symbol: str) -> None:
    assert read_number(f"3 {symbol}", symbol) == 3.0
    for example in EXAMPLES.get(symbol, f"1 {symbol}").split(" or "):
        assert read_number(example, symbol) > 0


def test_commas_part_the_values_of_a_list() -> None:
    assert read_list("1kW, 700W,2e3W", "W") == [1000.0, 700.0, 2000.0]
    assert read_list("256,2048", None) == [256.0, 2048.0]


@pytest.mark.parametrize("text", ["1,000", "24,576,000"])
def test_a_comma_between_thousands_is_not_taken_for_a_list(text: str) -> None:
    with pytest.raises(UnreadableError, match="write 1000 or 1_000"):
        read_list(text, None)


def test_a_list_with_units_for_some_only_is_refused() -> None:
    with pytest.raises(UnreadableError, match="either each value has a unit or none"):
        read_list("10,20GB", "B")
    assert read_list("10,20", "B") == [10.0, 20.0]


def test_a_list_may_stand_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "power.txt"
    file.write_text("700W\n\n  0.65 kW \n")
    assert read_list(f"@{file}", "W") == [700.0, 650.0]


def test_a_list_may_be_a_column_of_a_csv_file(tmp_path: Path) -> None:
    file = tmp_path / "run.csv"
    file.write_text("t,kind,power\n0,step,700\n1,restart,650\n")
    assert read_list(f"@{file}:power", "W") == [700.0, 650.0]
    assert read_words(f"@{file}:kind") == ["step", "restart"]


@pytest.mark.parametrize(
    ("content", "ending", "says"),
    [
        (None, "", "cannot read"),
        (b"\xff\xfe", "", "cannot read"),
        (b"t,power\n0,1\n", ":watts", "no column 'watts': there are t, power"),
        (b"", ":watts", "no column 'watts'"),
        (b"t,power\n0\n", ":power", "is not a number"),
        (b"12\nabc\n", "", "'abc' is not a number"),
    ],
)
def test_a_file_without_numbers_is_refused(
    tmp_path: Path, content: bytes | None, ending: str, says: str
) -> None:
    file = tmp_path / "file"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UnreadableError) as refused:
        read_list(f"@{file}{ending}", "W")
    assert says in str(refused.value)


def test_a_figure_of_the_catalogue_is_read_by_its_address() -> None:
    assert read_list("H100.tdp", "kW") == [0.7]
    assert read_list("h100.memory_bytes_per_s,700GB/s", "B/s") == [3.35e12, 7e11]
    current, textbook = CURRENT.pue_reference("typical").pue, TEXTBOOK.pue_reference("typical").pue
    assert current != textbook
    assert read_list("typical.pue,textbook:typical.pue", None) == [current, textbook]
    assert read_list("NVLink 4.0.per_direction", "B/s") == [450e9]


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("H100.memory", "memory_bytes, memory_bytes_per_s"),
        ("H100.weight", "'weight' is not one of the figures of H100"),
        ("H10.tdp", "did you mean H100?"),
        ("abacus9000xyz.tdp", "see headroom plan hardware list"),
        ("past:H100.tdp", "past is not a profile: there are textbook, current"),
        ("H100.tdp", "W is not a unit of this; B/s is"),
    ],
)
def test_an_address_that_leads_nowhere_is_refused(address: str, says: str) -> None:
    with pytest.raises(UnreadableError) as refused:
        read_list(address, "B/s")
    assert says in str(refused.value)
