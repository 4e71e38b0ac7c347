# run    start everything: servers, web, worker, beat, demo fleet      ARGS="--port 8001 --no-demo"
# test   unit, integration and browser tests                           ARGS="-k heatmap"
# See docs/how-to/develop.md.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=

# mypy's Django plugin imports the settings; it connects to nothing.
LINT_ENV := DATABASE_URL=postgresql://lint@localhost/lint REDIS_URL=redis://localhost SECRET_KEY=lint

.PHONY: run test test-all lint fix hooks bench screenshots pictures docs lock audit sbom clean

run: $(VENV)/server.stamp
	@exec $(BIN)/python -m config.up $(ARGS)

test: $(VENV)/dev.stamp
	@sh tests/browser/ensure-chromium.sh
	@sh tests/standin/ensure-compiler.sh
	@sh tests/integration/agent/ensure-python.sh
	@sh tests/integration/agent/ensure-iproute2.sh
	@sh examples/ddp/ensure-torch.sh $(BIN)/python
	@sh bench/ensure-peers.sh prometheus
	@sh deploy/helm/ensure-helm.sh $(BIN)/python
	@sh tests/slurm/ensure-slurm.sh
	@sh tests/object_store/ensure-seaweedfs.sh $(BIN)/python
	@# In the order of the folders: what waits for servers and browsers comes first, what is quick last.
	$(BIN)/python -m pytest -m "not slow" --hypothesis-profile=quick -n 4 --dist loadfile --no-loadscope-reorder $(ARGS)

test-all: $(VENV)/dev.stamp
	@sh tests/browser/ensure-chromium.sh
	@sh tests/standin/ensure-compiler.sh
	@sh tests/integration/agent/ensure-python.sh
	@sh tests/integration/agent/ensure-iproute2.sh
	@sh examples/ddp/ensure-torch.sh $(BIN)/python
	@sh bench/ensure-peers.sh prometheus
	@sh deploy/helm/ensure-helm.sh $(BIN)/python
	@sh tests/slurm/ensure-slurm.sh
	@sh tests/object_store/ensure-seaweedfs.sh $(BIN)/python
	$(BIN)/python -m pytest $(ARGS)

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/djangofmt --check templates
	$(LINT_ENV) $(BIN)/mypy .

fix: $(VENV)/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/djangofmt templates

# Mend before each commit: .pre-commit-config.yaml.
hooks: $(VENV)/dev.stamp
	$(BIN)/pre-commit install

bench: $(VENV)/dev.stamp
	$(BIN)/python -m bench all

# Every page of the server that `make run` started, in light, dark and on a phone.
screenshots: $(VENV)/dev.stamp
	$(BIN)/python -m tests.browser.screenshots $(ARGS)

# Every page in each state of a fleet: busy, of 100,000 GPUs, empty, stale, with long names.
pictures: $(VENV)/dev.stamp
	HEADROOM_PICTURES=build/pictures $(BIN)/python -m pytest -n 0 tests/browser/test_every_state.py $(ARGS)

# The reference pages that are generated: OpenAPI and the schema of the contract.
docs: $(VENV)/dev.stamp
	$(LINT_ENV) $(BIN)/python manage.py reference

# Pin again all of pyproject.toml, with hashes. Needs uv.
lock:
	uv pip compile pyproject.toml --extra server $(LOCK) -o requirements.txt
	uv pip compile pyproject.toml --extra dev $(LOCK) -c requirements.txt -o requirements-dev.txt
LOCK := --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-emit-find-links --no-header --quiet

# Is anything that we ship known to be unsafe? Asks PyPI for its advisories.
audit: $(VENV)/dev.stamp
	$(BIN)/pip-audit --strict --require-hashes --disable-pip -r requirements.txt

# What we ship, with digests, as CycloneDX.
sbom: $(VENV)/dev.stamp
	@mkdir -p build
	$(BIN)/python -W ignore -m cyclonedx_py requirements requirements.txt --pyproject pyproject.toml \
		--output-reproducible --output-file build/sbom.cdx.json

clean:
	rm -rf $(VENV) staticfiles .mypy_cache .ruff_cache .pytest_cache

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Headroom needs Python 3.11 or newer: make run PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
		{ echo "No venv module: install your system's python3-venv package" >&2; rm -rf $(VENV); exit 1; }

$(VENV)/server.stamp: requirements.txt pyproject.toml lab/pyproject.toml | $(VENV)/bin/python
	@echo "Installing the pinned requirements into $(VENV) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
		-e . -e ./lab
	@touch $@

$(VENV)/dev.stamp: requirements-dev.txt $(VENV)/server.stamp
	@echo "Installing the pinned development requirements into $(VENV) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.txt
	@touch $@
