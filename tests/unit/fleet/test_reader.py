from __future__ import annotations

import pytest

from fleet.inventory import InventoryError, reader


def problem_of(text: str) -> tuple[int | None, str]:
    with pytest.raises(InventoryError) as caught:
        reader.read(text)
    problem = caught.value.problems[0]
    return problem.line, problem.message


@pytest.mark.parametrize("word", ["no", "on", "01", "1_000", "3.2e12", "12:30:45", "2026-01-01"])
def test_plain_words_stay_what_they_look_like(word: str) -> None:
    assert reader.read(f"name: {word}") == {"name": word}


@pytest.mark.parametrize("nothing", ["", "~", "null"])
def test_null_is_null_unless_it_is_quoted(nothing: str) -> None:
    assert reader.read(f"a: {nothing}\nb: '{nothing}'") == {"a": None, "b": nothing}


def test_an_empty_text_is_null() -> None:
    assert reader.read("# nothing yet\n") is None


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("a: &x 1\nb: *x\n", 2, "aliases"),
        ("a: &x [*x]\n", 1, "aliases"),
        ("a: !!python/object:os.system x\n", 1, "tags"),
        ("a: 1\nb: !thing {}\n", 2, "tags"),
        ("a: 1\nb: 2\na: 3\n", 3, "twice"),
        ("a: 1\n---\nb: 1\n", 2, "second document"),
        ("? [a]\n: 1\n", 1, "a key is a text"),
        ("a:\n  - b\n c: d\n", 3, "did not find"),
        ("[" * 100_000, 1, "nested too deep"),
        ('a: "\\0"\n', 1, "null character"),
        ("a: {b: {c: d}}\nb: 'open\n", 3, "end of stream"),
    ],
)
def test_it_says_where_a_text_cannot_be_taken(text: str, line: int, says: str) -> None:
    where, message = problem_of(text)
    assert says in message
    assert where == line


def test_control_characters_are_refused_by_the_format() -> None:
    assert "not YAML" in problem_of("a: \x07\n")[1]


def test_a_chain_of_aliases_does_not_grow() -> None:
    bomb = "a: &a [x, x]\n" + "".join(
        f"{name}: &{name} [*{before}, *{before}]\n"
        for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    )
    assert "aliases" in problem_of(bomb)[1]


def test_more_values_than_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MAX_VALUES", 3)
    assert "more than 3 values" in problem_of("[a, b, c, d]")[1]


def test_a_file_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MAX_BYTES", 10)
    with pytest.raises(InventoryError, match="longer than"):
        reader.decode(b"a" * 11)


def test_bytes_that_are_not_utf8_are_refused_with_their_line() -> None:
    with pytest.raises(InventoryError, match=r"fleet\.yaml:2: not UTF-8"):
        reader.decode(b"a: 1\nb: \xff\n", "fleet.yaml")


def test_a_byte_order_mark_is_no_part_of_the_text() -> None:
    assert reader.decode("\ufeffa: 1".encode()) == "a: 1"


def test_it_finds_the_lines_of_paths() -> None:
    text = "sites:\n  - name: a\n    racks:\n      - {name: r1}\n      - name: r2\n        row: A\n"
    paths = [("sites", 0, "racks", 1, "row"), ("sites", 0, "racks", 0, "name"), ("sites", 0)]
    lines = reader.locate(text, paths)
    assert [lines[path] for path in paths] == [6, 4, 2]


def test_what_is_not_there_is_found_where_it_would_be() -> None:
    missing = ("sites", 0, "budget_w")
    assert reader.locate("sites:\n  - name: a\n", [missing])[missing] == 2
