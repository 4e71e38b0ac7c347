"""The documents: links lead somewhere, nothing is left out, the contract is described in full."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
from pathlib import Path

import msgspec
import pytest

from headroom import contracts
from headroom.contracts import ThrottleCause

REPOSITORY = Path(__file__).resolve().parents[2]
DOCS = REPOSITORY / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
ROOT_PAGES = [
    REPOSITORY / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
]
DECISIONS = sorted((DOCS / "decisions").glob("*.md"))
DECISION_HEADINGS = [
    "Status",
    "Motivation",
    "Goals",
    "Non-goals",
    "Decision",
    "Test plan",
    "Drawbacks",
    "Alternatives",
]
CONTRACT = (DOCS / "reference" / "telemetry.md").read_text()

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"")
_FENCE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)


def name_of(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


def prose(path: Path) -> str:
    """Return a page without its blocks of code."""
    return _FENCE.sub("", path.read_text())


def links(path: Path) -> list[str]:
    """Return the targets of a page's links that lead to this repository."""
    found = [link or image for link, image in _LINK.findall(prose(path))]
    return [target for target in found if not re.match(r"[a-z]+:", target)]


def anchors(path: Path) -> set[str]:
    """Return the names under which a page's headings can be linked to."""
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(prose(path)))
    return {heading.replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", [*PAGES, *ROOT_PAGES], ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    dead = []
    for link in links(page):
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        if not path.exists() or (anchor and path.suffix == ".md" and anchor not in anchors(path)):
            dead.append(link)
    assert not dead


def test_the_index_links_to_every_page() -> None:
    index = DOCS / "index.md"
    linked = {(DOCS / link.partition("#")[0]).resolve() for link in links(index)}
    assert not [name_of(page) for page in PAGES if page != index and page not in linked]


@pytest.mark.parametrize("page", DECISIONS, ids=name_of)
def test_a_decision_has_all_of_its_headings(page: Path) -> None:
    assert re.findall(r"^## (.+)$", prose(page), re.MULTILINE) == DECISION_HEADINGS


def test_decisions_are_numbered_without_gap() -> None:
    assert [int(page.name[:4]) for page in DECISIONS] == list(range(len(DECISIONS)))


#: Folders that hold code, and what stands in code spans with such a name and is no module: ids of
#: checks, files, capabilities, and settings of admission policies.
ROOMS = (
    "accounts|admission|bench|config|dashboard|deploy|examples|fleet|headroom|lab|physics|policies|"
    "static|telemetry|templates|tests"
)
NO_MODULE = re.compile(
    r"headroom\.([EW]\d+|lock|service)|fleet\.(apply|KIND.*)|telemetry\.refused|admission\."
    r"(tuning|reserve|fill_share|enforces_budgets|reads_live|follows_rules|caps|responds|sheds|moves)"
)


def spans(page: Path) -> set[str]:
    """Return the code spans of a page's prose."""
    return set(re.findall(r"`([^`\n]+)`", prose(page)))


@functools.cache
def tracked() -> frozenset[str]:
    """Return the paths of all files that Git knows or would take."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True)
    return frozenset(f"/{path}" for path in listed.stdout.splitlines())


def is_a_file(path: str) -> bool:
    """Return whether a path, from the root or from any folder, is that of a file or a folder."""
    wanted = f"/{path.strip('/')}"
    return any(known.endswith(wanted) or f"{wanted}/" in known for known in tracked())


def is_code(name: str) -> bool:
    """Return whether a dotted name is that of a module, or of something that a module defines."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        base, rest = REPOSITORY.joinpath(*parts[:count]), parts[count:]
        source = base.with_suffix(".py")
        source = source if source.is_file() else base / "__init__.py"
        if source.is_file():
            return set(rest) <= set(re.findall(r"\w+", source.read_text()))
    return False


#: The changelog tells of names that are gone, too.
@pytest.mark.parametrize("page", [*PAGES, *ROOT_PAGES[:1], *ROOT_PAGES[2:]], ids=name_of)
def test_code_that_a_page_names_exists(page: Path) -> None:
    gone = []
    for span in spans(page):
        path = span.partition("::")[0]
        is_path = path.endswith(".py") or path.startswith(tuple(f"{r}/" for r in ROOMS.split("|")))
        if is_path and re.fullmatch(r"[\w./-]+", path):
            known = is_a_file(path)
        elif re.fullmatch(rf"(?:{ROOMS})(?:\.\w+)+", span) and not NO_MODULE.fullmatch(span):
            known = is_code(span)
        else:
            continue
        if not known:
            gone.append(span)
    assert not gone


@pytest.mark.parametrize("page", [*PAGES, *ROOT_PAGES], ids=name_of)
def test_a_page_has_one_title(page: Path) -> None:
    assert len(re.findall(r"^# ", prose(page), re.MULTILINE)) == 1


def test_the_threat_model_names_tests_that_there_are() -> None:
    page = (DOCS / "explanation" / "security.md").read_text()
    tests = REPOSITORY / "tests"
    code = "".join(path.read_text() for path in tests.rglob("test_*.py"))
    named = set(re.findall(r"`(test\w+)`", page))
    assert named
    assert not [name for name in named if f"def {name}(" not in code]
    files = set(re.findall(r"`(test\w+\.py)`", page))
    assert not [name for name in files if not list(tests.rglob(name))]
    paths = set(re.findall(r"`(tests/[\w/.]+)`", page))
    assert not [path for path in paths if not (REPOSITORY / path).exists()]


def wire_structs() -> list[type[msgspec.Struct]]:
    """Return the structs of the contract, by name."""
    found = [
        each
        for each in vars(contracts).values()
        if isinstance(each, type) and issubclass(each, msgspec.Struct)
    ]
    return sorted(
        (each for each in found if each not in (msgspec.Struct, contracts.Columns)),
        key=lambda each: each.__name__,
    )


@pytest.mark.parametrize("struct", wire_structs(), ids=lambda struct: struct.__name__)
def test_every_field_of_the_contract_is_described(struct: type[msgspec.Struct]) -> None:
    rows = f"{CONTRACT}\n{documented_errors()}"
    assert not [name for name in struct.__struct_fields__ if f"`{name}`" not in rows]


def documented_errors() -> str:
    """Return the names of an error body's fields: an example shows them, not a table."""
    example = re.search(r'^\{"error": .*?^```', CONTRACT, re.MULTILINE | re.DOTALL)
    assert example
    return " ".join(f"`{name}`" for name in re.findall(r'"(\w+)":', example[0]))


@pytest.mark.parametrize(
    ("heading", "struct"),
    [
        ("### `gpus`", contracts.GpuColumns),
        ("### `host`", contracts.HostColumns),
        ("### `storage`", contracts.StorageColumns),
        ("### `xids`", contracts.XidColumns),
        ("## Links", contracts.LinkColumns),
        ("## Meters", contracts.MeterColumns),
        ("## Jobs", contracts.JobColumns),
        ("## Limit reports", contracts.LimitReport),
        ("## Status", contracts.AgentStatus),
        ("## The batch", contracts.TelemetryBatch),
    ],
)
def test_a_table_has_the_fields_of_its_block_and_no_others(
    heading: str, struct: type[msgspec.Struct]
) -> None:
    section = CONTRACT.split(f"\n{heading}\n")[1].partition("\n#")[0]
    assert re.findall(r"^\| `(\w+)`", section, re.MULTILINE) == list(struct.__struct_fields__)


@pytest.mark.parametrize("cause", ThrottleCause, ids=lambda cause: cause.token)
def test_every_throttle_cause_is_described(cause: ThrottleCause) -> None:
    assert f"| 0x{int(cause):x} | `{cause.token}` |" in CONTRACT


#: Where a telemetry endpoint gets its refusals from.
REFUSING = (
    "headroom/contracts.py",
    "headroom/layouts.py",
    "telemetry/agreements.py",
    "telemetry/checks.py",
    "telemetry/positions.py",
    "telemetry/intake.py",
    "telemetry/views.py",
    "telemetry/ingest/errors.py",
    "telemetry/ingest/otlp.py",
    "telemetry/ingest/partial.py",
    "telemetry/ingest/readings.py",
    "telemetry/ingest/remote_write.py",
    "telemetry/ingest/requests.py",
    "telemetry/ingest/views.py",
)
#: What a code with a kind in it, such as "unknown_{kind}", can become.
KINDS = ("node", "link", "meter")


def codes_of(source: Path) -> set[str]:
    """Return the error codes that a module gives: first arguments of errors that it makes."""
    tree = ast.parse(source.read_text())
    found: set[str] = set()
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        if name[:1].isupper() and len(call.args) >= 2:
            found |= _texts(call.args[0])
    return {code for code in found if re.fullmatch(r"[a-z]+(_[a-z]+)*", code)}


def _texts(node: ast.expr) -> set[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return {node.value}
    if isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
        return {f"{node.values[0].value!s}{kind}" for kind in KINDS}
    return set()


def documented_codes() -> dict[str, int]:
    """Return the status of each code in the table of errors."""
    table = CONTRACT.split("\n## Errors\n")[1]
    return {c: int(s) for c, s in re.findall(r"^\| `(\w+)` \| (\d+) \|", table, re.MULTILINE)}


def test_every_error_code_is_described_and_no_other() -> None:
    given = set().union(*(codes_of(REPOSITORY / source) for source in REFUSING))
    assert given == documented_codes().keys()
