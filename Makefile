# Each target does its own set-up. Messages about set-up go to standard error, so that `make demo ARGS=--json` prints one document.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.ONESHELL:
MAKEFLAGS += --no-print-directory --no-builtin-rules
.DEFAULT_GOAL := help

# Debian keeps mosquitto in /usr/sbin, which a user's path may lack.
export PATH := $(PATH):/usr/sbin:/sbin

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
RUN := $(VENV)/.installed-run
DEV := $(VENV)/.installed-dev
# Flower and torch live apart: what they hold back must not hold the agent back.
TRAIN_VENV := .venv-train
TRAIN_BIN := $(TRAIN_VENV)/bin
LEARN := $(TRAIN_VENV)/.installed-learn
TRAIN := $(TRAIN_VENV)/.installed
TRAIN_PIP := $(TRAIN_BIN)/python -m pip --disable-pip-version-check --quiet
# The queues that ours is measured beside weigh on nothing else either.
BENCH_VENV := .venv-bench
BENCH_BIN := $(BENCH_VENV)/bin
BENCH := $(BENCH_VENV)/.installed
BENCH_PIP := $(BENCH_BIN)/python -m pip --disable-pip-version-check --quiet
# More words for pip, for instance where a processor-only build of torch is to be had.
TORCH ?=
PINS := pyproject.toml constraints/edge.txt constraints/rules.txt
# With two processors, two tests at a time (ARGS=-n0: one); those of one file stay together, and files keep their order.
BESIDE := $(if $(filter-out 1,$(shell nproc)),-n 2 --dist loadfile --no-loadscope-reorder)
ARGS ?=

.PHONY: help demo test test-train torture soak check bench bench-federation bench-queue clean

help: ## Show these lines.
	@sed -nE 's/^([a-z%-]+):[^#]*## (.*)$$/  make \1\t\2/p' $(MAKEFILE_LIST) | sed 's/%/NAME/' | expand -t 20

demo: $(RUN) $(if $(filter --round,$(ARGS)),$(LEARN)) ## Run a fleet through an outage and print the reckoning (ARGS=--json for one document; ARGS=--round: it learns).
	@exec $(BIN)/skerry demo $(ARGS)

test: $(DEV) ## Run the whole test suite (ARGS='-k words' for a part of it).
	@exec $(BIN)/python -m pytest $(BESIDE) $(ARGS)

test-train: $(TRAIN) ## Run the tests that need Flower and torch (420 MB of downloads once; ARGS as for test).
	@exec $(TRAIN_BIN)/python -m pytest tests/train $(ARGS)

torture: $(RUN) ## Kill agent, coordinator and broker at random moments and compare every record (ARGS='--kills 100'; ARGS='queue --kills 15000': the queue's owner).
	@exec $(BIN)/python -m tests.chaos $(ARGS)

soak: $(RUN) ## Run the twin's long outages at their full size: an hour on two processors (ARGS: names of other scenarios).
	@exec $(BIN)/python -m tests.chaos.soak $(ARGS)

check: $(DEV) ## Check style, types, import layers and documents; every check runs, whatever the one before says.
	@status=0
	check() { echo "== $$*" >&2; "$(BIN)/$$@" || status=1; }
	check ruff check .
	check ruff format --check .
	check mypy
	check pyright
	check lint-imports
	check python tools/check_docs.py
	exit $$status

bench: $(RUN) ## Run every benchmark (ARGS=--quick for small sizes, ARGS=--json for one document).
	@exec $(BIN)/python -m benchmarks $(ARGS)

bench-federation: $(RUN) $(TRAIN) ## Measure federated rounds beside Flower's simulation (ARGS as for bench).
	@exec $(BIN)/python -m benchmarks federation $(ARGS)

bench-queue: $(BENCH) ## Measure the durable queue beside its peers (needs gcc, eatmydata and 17 GB; 30 minutes, ARGS=--quick: one).
	@exec $(BENCH_BIN)/python -m benchmarks queue $(ARGS)

bench-%: $(RUN) ## Run one benchmark by name.
	@exec $(BIN)/python -m benchmarks $* $(ARGS)

clean: ## Remove the virtual environments and everything the tools left behind.
	@rm -rf $(VENV) $(TRAIN_VENV) $(BENCH_VENV) build dist .pytest_cache .hypothesis .mypy_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
	  echo "skerry needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1). Name another with PYTHON=/path/to/python3." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV) >&2 || {
	  echo "could not make a virtual environment; on Debian: apt-get install python3-venv" >&2; rm -rf $(VENV); exit 1; }

$(RUN): $(PINS) | $(BIN)/python
	@echo "set-up (once): downloading Python packages into $(VENV), 82 MB (300 MB on disk)" >&2
	$(PIP) install --require-hashes --no-deps -r constraints/rules.txt >&2 || {
	  echo "the rule engine could not be installed: its wheels are for x86-64 and aarch64 with glibc 2.34 or newer (Debian 12)" >&2; exit 1; }
	$(PIP) install -c constraints/edge.txt -e '.[edge,rules,demo]' >&2
	touch $@

$(DEV): $(RUN)
	@echo "set-up (once): downloading the test and check tools into $(VENV), 38 MB (150 MB on disk)" >&2
	$(PIP) install -c constraints/edge.txt -e '.[edge,rules,demo,dev]' >&2
	touch $@

$(LEARN): pyproject.toml constraints/cloud.txt
	@test -x $(TRAIN_BIN)/python || $(PYTHON) -m venv $(TRAIN_VENV) >&2
	echo "set-up (once): downloading Flower and torch into $(TRAIN_VENV), 340 MB with the processor-only build of torch (1.4 GB on disk);" \
	  "an index that has only the build with CUDA sends some GB more: TORCH='--extra-index-url URL' names another" >&2
	$(TRAIN_PIP) install $(TORCH) -c constraints/cloud.txt -e ".[train,federation]" >&2
	touch $@

$(TRAIN): $(LEARN) constraints/simulation.txt
	@echo "set-up (once): downloading Flower's own simulation engine, which tests and benchmarks compare with, into $(TRAIN_VENV), 75 MB" >&2
	$(TRAIN_PIP) install $(TORCH) -c constraints/cloud.txt -c constraints/simulation.txt \
	  -e ".[train,federation]" ray pytest pytest-timeout hypothesis >&2
	touch $@

$(BENCH): $(PINS) constraints/bench.txt
	@test -x $(BENCH_BIN)/python || $(PYTHON) -m venv $(BENCH_VENV) >&2
	echo "set-up (once): downloading the queues to compare with into $(BENCH_VENV), 60 MB" >&2
	$(BENCH_PIP) install --require-hashes --no-deps -r constraints/rules.txt >&2
	$(BENCH_PIP) install -c constraints/edge.txt -c constraints/bench.txt -e '.[edge,rules,bench]' >&2
	touch $@
