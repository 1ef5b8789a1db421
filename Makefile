# Needs python3 (3.11 or later, with venv), git and, for the sandbox itself, bubblewrap. Everything else goes into .venv.
# Another Python: make PYTHON=/path/to/python3.12 ...

SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
SECONDS_EACH ?= 60
BENCH_ARGS ?=
PYTEST_ARGS ?=
# What runs pytest; .ci/run puts coverage here.
PYTEST ?= $(BIN)/python -m pytest

.PHONY: help setup demo test lint format bench bench-peers fuzz lock clean

help:
	@echo "make demo    a workflow in a sandbox: one connection allowed, one blocked, one stopped by the kernel"
	@echo "make test    every test, those against real clients and kernel features included"
	@echo "make lint    ruff and mypy --strict"
	@echo "make bench   one table of figures beside squid, tinyproxy, proxy.py and mitmproxy (JSON in bench/out/)"
	@echo "make fuzz    every fuzz target for SECONDS_EACH=$(SECONDS_EACH) seconds"
	@echo "make clean   remove .venv and everything that was built"

setup: $(STAMP)

$(STAMP): requirements.lock pyproject.toml .ci/setup-venv
	@.ci/setup-venv $(VENV) "$(PYTHON)"
	@touch $@

demo: $(STAMP)
	@.ci/need-bubblewrap
	@$(BIN)/python examples/demo/demo.py

test: $(STAMP)
	@.ci/need-bubblewrap || echo "The tests of the sandbox itself cannot pass without it; the others run now." >&2
	$(PYTEST) $(PYTEST_ARGS)

lint: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/mypy --config-file= --strict .ci/coverage_gate.py

format: $(STAMP)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(STAMP)
	@$(BIN)/python -m bench $(BENCH_ARGS)

bench-peers: $(STAMP)
	@$(BIN)/python -m bench.install_peers

fuzz: $(STAMP)
	@$(BIN)/python fuzz/run.py --seconds $(SECONDS_EACH)

# Needs uv (pip install uv). The lock serves every platform and is checked by hash at each set-up.
lock:
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --all-extras --no-header pyproject.toml -o requirements.lock

clean:
	rm -rf $(VENV) build dist *.egg-info bench/out fuzz/out .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
