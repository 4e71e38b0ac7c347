"""The containers, as far as that can be seen without an engine to run them."""

from __future__ import annotations

import importlib.resources
import json
import re
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from django.conf import settings

from config.process import PARTS

REPOSITORY = Path(__file__).resolve().parents[2]
TEXT = (REPOSITORY / "docker-compose.yml").read_text()
DOCKERFILE = (REPOSITORY / "Dockerfile").read_text().replace("\\\n", " ")
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = [name for name, service in SERVICES.items() if "build" in service]
REQUIRED = {
    "POSTGRES_PASSWORD", "POSTGRES_OWNER_PASSWORD", "POSTGRES_APP_PASSWORD", "REDIS_PASSWORD",
    "SECRET_KEY",
}  # fmt: skip

_VARIABLE = re.compile(r"\$\{(\w+)")


def environment(service: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = service.get("environment", {})
    return found


def instructions(word: str) -> list[str]:
    """Return what stands after ``word`` on each line of the Dockerfile that begins with it."""
    return re.findall(rf"^{word} (.+)$", DOCKERFILE, re.MULTILINE)


def copied() -> list[str]:
    """Return the sources of every COPY out of the repository."""
    words = [shlex.split(line) for line in instructions("COPY")]
    return [source for line in words if not line[0].startswith("--from") for source in line[:-1]]


def test_the_file_keeps_to_the_compose_specification() -> None:
    file = (
        importlib.resources.files("check_jsonschema") / "builtin_schemas/vendor/compose-spec.json"
    )
    schema = json.loads(file.read_text(encoding="utf-8"))
    validator = jsonschema.validators.validator_for(schema)(schema)
    assert not [f"{e.json_path}: {e.message}" for e in validator.iter_errors(COMPOSE)]


def test_all_parts_are_there() -> None:
    stores = {"postgres", "valkey", "roles", "prepare"}
    assert stores | {"web", "worker", "housekeeper", "beat", "agent"} == SERVICES.keys()


@pytest.mark.parametrize("name", SERVICES)
def test_an_image_is_built_here_or_has_a_version(name: str) -> None:
    assert name in OURS or re.search(r":\d[\w.-]*$", SERVICES[name]["image"])


def test_base_images_have_a_version() -> None:
    assert all(re.match(r"\S+:\d", line) for line in instructions("FROM"))


@pytest.mark.parametrize("name", SERVICES)
def test_no_secret_is_written_down(name: str) -> None:
    secret = re.compile(r"PASSWORD|SECRET|TOKEN|AUTH|_URL$")
    literal = [
        key
        for key, value in environment(SERVICES[name]).items()
        if secret.search(key) and not _VARIABLE.search(value)
    ]
    assert not literal


@pytest.mark.parametrize("name", SERVICES)
def test_no_secret_stands_in_a_command(name: str) -> None:
    # Every user of the machine can read the arguments of a process.
    command = " ".join(SERVICES[name].get("command", []))
    assert set(_VARIABLE.findall(command)) <= {"AGENT_NODE"}


def test_each_service_knows_the_database_role_that_it_needs_and_no_other() -> None:
    def knowing(role: str) -> set[str]:
        return {
            name for name in OURS if f"//{role}:" in " ".join(environment(SERVICES[name]).values())
        }

    assert knowing("headroom") == {"roles"}
    assert knowing("headroom_owner") == {"roles", "prepare"}
    assert {"web", "worker", "housekeeper", "beat"} <= knowing("headroom_app")


@pytest.mark.parametrize("variable", sorted(REQUIRED))
def test_a_required_secret_has_no_default(variable: str) -> None:
    uses = re.findall(rf"\$\{{{variable}(:?[?-]?)", TEXT)
    assert uses
    assert set(uses) == {":?"}


def test_the_example_names_every_variable_and_gives_no_value() -> None:
    lines = (REPOSITORY / ".env.example").read_text().splitlines()
    pairs = [line.split("=", 1) for line in lines if line and not line.startswith("#")]
    assert {name for name, _ in pairs} == set(_VARIABLE.findall(TEXT))
    assert not [name for name, value in pairs if value]


@pytest.mark.parametrize("name", OURS)
def test_our_services_are_given_what_they_know(name: str) -> None:
    pages = ("settings.md", "command-line.md")
    known = "".join((REPOSITORY / "docs" / "reference" / page).read_text() for page in pages)
    assert not [key for key in environment(SERVICES[name]) if f"`{key}`" not in known]


@pytest.mark.parametrize("name", OURS)
def test_our_services_have_no_more_rights_than_they_need(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert instructions("USER") == ["headroom"]


def test_only_the_web_server_can_be_reached_and_only_from_this_machine() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published.keys() == {"web"}
    assert all(str(port).startswith("127.0.0.1:") for port in published["web"])


def test_services_wait_for_what_they_need() -> None:
    for name in ("web", "worker", "housekeeper", "beat"):
        conditions = {n: need["condition"] for n, need in SERVICES[name]["depends_on"].items()}
        assert conditions == {
            "postgres": "service_healthy",
            "valkey": "service_healthy",
            "prepare": "service_completed_successfully",
        }


def test_what_is_kept_has_a_volume() -> None:
    used = {v.split(":")[0] for s in SERVICES.values() for v in s.get("volumes", [])}
    assert used == COMPOSE["volumes"].keys()
    # From version 18 on, the image keeps its data one level up.
    assert SERVICES["postgres"]["volumes"] == ["postgres:/var/lib/postgresql"]


def test_all_that_the_image_copies_exists_and_gets_past_dockerignore() -> None:
    ignored, *allowed = (REPOSITORY / ".dockerignore").read_text().split("\n\n")[0].splitlines()[1:]
    assert ignored == "*"
    assert copied()
    assert not [source for source in copied() if not (REPOSITORY / source).exists()]
    assert set(copied()) == {line.removeprefix("!") for line in allowed if line.startswith("!")}


def test_the_image_holds_every_room_of_the_server() -> None:
    rooms = {
        "accounts",
        "admission",
        "config",
        "dashboard",
        "fleet",
        "headroom",
        "physics",
        "policies",
        "telemetry",
    }
    assert rooms <= set(copied())


def test_requirements_are_checked_against_their_hashes() -> None:
    installs = [line for line in instructions("RUN") if "requirements" in line]
    assert installs
    assert all("--require-hashes" in line for line in installs)


def test_each_part_is_started_by_its_name() -> None:
    web = json.loads(instructions("CMD")[-1])
    assert web == ["python", "-m", "config.process", "web", "--host", "0.0.0.0", "--port", "8000"]
    for name in ("worker", "housekeeper", "beat"):
        assert SERVICES[name]["command"] == ["python", "-m", "config.process", name]


def test_each_queue_has_a_worker() -> None:
    commands = [PARTS[name] for name in ("worker", "housekeeper")]
    taken = [command[command.index("--queues") + 1] for command in commands]
    assert sorted(",".join(taken).split(",")) == sorted(
        queue.name for queue in settings.CELERY_TASK_QUEUES
    )
