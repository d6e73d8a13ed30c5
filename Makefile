# Needs make and Python 3.11 or later, nothing else: the Java that Spark runs on comes with the packages.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help setup demo check test simulate torture fuzz bench lock clean

help: ## show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):[^#]*## /\1\t/' | expand -t 10

setup: $(VENV)/slipstream ## make .venv with exactly the locked packages, and Slipstream itself, editable

$(VENV)/packages: requirements/build.lock requirements/dev.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Slipstream needs Python 3.11 or later; run: make setup PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv --clear $(VENV)
	@echo "installing the locked packages (PySpark is some 400 MB: the first time takes minutes)"
	@$(PIP) --require-hashes -r requirements/build.lock
	@$(PIP) --require-hashes --no-build-isolation -r requirements/dev.lock
	@touch $@

$(VENV)/slipstream: $(VENV)/packages pyproject.toml
	@echo "installing slipstream, editable"
	@$(PIP) --no-build-isolation --no-deps --editable .
	@touch $@

demo: setup ## a live shop for a minute; its engine is killed half-way; checked against batch Spark
	$(BIN)/python -m demo

check: setup ## lint, types, and the tests that need no Spark: within three minutes
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pytest --numprocesses 2 --dist worksteal -m "not spark and not slow"

test: setup ## lint, types, tests: what CI runs
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pytest --numprocesses 2 --dist worksteal

SECONDS ?= 600
simulate: setup ## engines, agents and replicas on simulated disks that fail in every way, for SECONDS=600
	$(BIN)/python -m slipstream.testing.simulation --seconds $(SECONDS) --jobs 2 $(if $(SEED),--seed $(SEED))

torture: setup ## kill the processes of a running app at random for SECONDS=600, and check that it is never wrong
	$(BIN)/python -m slipstream.testing.torture --seconds $(SECONDS)

fuzz: setup ## the 99 queries of TPC-DS and random queries, for SECONDS=600, against batch Spark
	$(BIN)/python -m slipstream.testing.tpcds
	$(BIN)/python -m slipstream.testing.fuzz --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

bench: setup ## measure on this machine
	$(BIN)/python -m benchmarks

lock: setup ## choose versions anew and pin them with their hashes
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --upgrade --generate-hashes --no-emit-index-url \
		--no-header --output-file requirements/build.lock requirements/build.in
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --upgrade --generate-hashes --no-emit-index-url \
		--no-header --all-extras --output-file requirements/dev.lock pyproject.toml

clean: ## remove what was made
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
