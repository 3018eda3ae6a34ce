# Every command makes its own virtual environment in .venv; a machine needs Python >= 3.11 and make, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help

.PHONY: help demo test check lint format bench accuracy clean

help: ## say what there is
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

demo: $(VENV)/.installed ## start an engine without a model, break it in three ways, and diagnose each
	@$(BIN)/slowrank demo

dev: $(VENV)/.installed ## a workload, slowrank, Prometheus and Alertmanager on this machine, without Docker
	@$(BIN)/python deploy/dev.py $(WORKLOAD)

test: $(VENV)/.installed-dev ## run all tests, about eight minutes: clusters keep time, all others run beside them at low priority
	@tests/all.sh $(BIN)/python $(VENV)

check: lint test ## everything that must be green before a change lands

lint: $(VENV)/.installed-dev ## style, types, and the arrows between the rooms
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

build: $(VENV)/.installed ## make the generated files anew: dashboards and Prometheus rules
	@$(BIN)/slowrank dashboards build dashboards/generated
	@$(BIN)/slowrank rules build dashboards/generated

format: $(VENV)/.installed-dev ## put the code into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.installed-dev ## print the speed of the parser beside prometheus_client's
	$(BIN)/python benchmarks/exposition.py

accuracy: $(VENV)/.installed-dev ## measure how often the diagnosis is right, and renew docs/accuracy.md (ten minutes)
	$(BIN)/python -m benchmarks.accuracy --write

clean: ## remove what was made here
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist

$(VENV)/.pip:
	@test -x $(BIN)/python || { echo "making $(VENV) ..."; $(PYTHON) -m venv $(VENV); }
	@$(BIN)/python -m pip install --quiet --upgrade pip
	@touch $@

$(VENV)/.installed: pyproject.toml $(VENV)/.pip
	@echo "installing slowrank into $(VENV) (about half a minute) ..."
	@$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "installing test tools ..."
	@$(BIN)/python -m pip install --quiet --group dev
	@touch $@
