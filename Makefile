# Each target is all the set-up a machine with python3 and its venv module needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# CuPy loads our kernels on an NVIDIA machine; nothing else needs it.
GPU := $(shell command -v nvidia-smi >/dev/null 2>&1 && echo ,gpu)
.DEFAULT_GOAL := help
.PHONY: help demo test ui lint bench clean

help:
	@echo "make demo   the whole lineage on generated synthetic ES, on the CPU, in minutes"
	@echo "make test   the tests"
	@echo "make ui     Dagster's webserver and daemon on http://localhost:3000"
	@echo "make lint   ruff and mypy"
	@echo "make bench  benchmarks, as ratios"

$(VENV)/.run: pyproject.toml requirements.lock
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements.lock -e '.[run$(GPU)]'
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements.lock -e '.[dev$(GPU)]'
	@touch $@

demo: $(VENV)/.run
	$(BIN)/foxhunt demo

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --dist loadfile

ui: $(VENV)/.run
	$(BIN)/foxhunt ui

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.dev
	$(BIN)/foxhunt bench

clean:
	rm -rf $(VENV)
