"""A slow test names a quick one beside it, as docs/decisions/0152 says: does that one exist?"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
TESTS = REPOSITORY / "tests"


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def _is_slow(node: ast.AST) -> bool:
    return ast.unparse(node).startswith("pytest.mark.slow")


def _named() -> Iterator[str]:
    """Yield the node ids that slow marks name."""
    for path in sorted(TESTS.rglob("*.py")):
        if "beside=" not in path.read_text():
            continue
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.Call) and _is_slow(node):
                yield from (ast.literal_eval(each.value) for each in node.keywords)


NAMED = sorted(set(_named()))


def _found(node_id: str) -> ast.FunctionDef:
    path, *inside = node_id.split("::")
    scope: ast.Module | ast.ClassDef | ast.FunctionDef = _tree(REPOSITORY / path)
    for name in inside:
        scope = next(
            each
            for each in scope.body
            if isinstance(each, ast.ClassDef | ast.FunctionDef) and each.name == name
        )
    assert isinstance(scope, ast.FunctionDef)
    return scope


def test_the_walk_finds_marks() -> None:
    assert len(NAMED) > 10


@pytest.mark.parametrize("node_id", NAMED)
def test_the_quick_test_that_is_named_is_there_and_quick(node_id: str) -> None:
    assert not any(map(_is_slow, _found(node_id).decorator_list))
    for node in _tree(REPOSITORY / node_id.partition("::")[0]).body:
        is_of_all = isinstance(node, ast.Assign) and "pytestmark" in ast.unparse(node.targets[0])
        assert not (is_of_all and "pytest.mark.slow" in ast.unparse(node))
