# make run    diagnose this machine (ARGS="--json --tag fast" passes arguments on)
# make test   the tests; they need gcc and no GPU
# Both set up .venv on a bare machine, with uv when it is there, else with python3's venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Without compiled files every run would parse our modules anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run test test-real check bench docs pyz knowledge clean

help:
	@sed -n 's/^# //p' Makefile

run: $(VENV)/.run
	@$(BIN)/nodedoctor $(ARGS)

test: $(VENV)/.dev
	$(BIN)/pytest -m "not real" $(ARGS)

# The suites that need something real (torch, Ray, Slurm, ibsim, chromium, a GPU); says which did not run and why.
test-real: $(VENV)/.dev
	$(BIN)/pytest -m real -rs tests $(ARGS) || [ $$? -eq 5 ]

check: $(VENV)/.dev
	$(BIN)/ruff check nodedoctor checks tests docs tools
	$(BIN)/ruff format --check nodedoctor checks tests docs tools
	$(BIN)/mypy

bench: $(VENV)/.dev
	$(BIN)/python tests/bench/bench.py $(ARGS)

# Pictures of the terminal interface for the README, from the recorded nodes.
docs: $(VENV)/.dev
	$(BIN)/python docs/pictures.py

# The single file dist/nodedoctor.pyz for nodes without network; needs the package index for its wheels, once.
pyz: $(VENV)/.dev
	@$(BIN)/python tools/pyz/build.py $(ARGS)

# Compares the pins in the knowledge tables with the package index; ARGS=--write adds new releases.
knowledge: $(VENV)/.dev
	$(BIN)/python tools/knowledge/refresh.py $(ARGS)

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .bench

$(VENV)/bin/python:
	@if command -v uv >/dev/null 2>&1; then uv venv --quiet --python ">=3.10" $(VENV); \
	else \
	  $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || \
	    { echo "nodedoctor needs Python 3.10 or newer: found $$($(PYTHON) --version 2>&1). Set PYTHON=, or install uv."; exit 1; }; \
	  $(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	    { echo "$(PYTHON) cannot make virtual environments. Install the package python3-venv (apt-get install python3-venv), or uv."; exit 1; }; \
	  $(PYTHON) -m venv $(VENV); \
	fi

$(VENV)/.run: $(VENV)/bin/python pyproject.toml
	@$(call install,.)
	@touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml
	@$(call install,.[dev])
	@touch $@ $(VENV)/.run

# compat: a plain path entry. The default import hook costs every interpreter 10 ms, our children included.
# (pip before 22.1 cannot be told, and Ubuntu 22.04 has that: there the hook it is.)
define install
if command -v uv >/dev/null 2>&1; then uv pip install --quiet --python $(BIN)/python -C editable_mode=compat -e '$(1)'; else \
  pip="$(BIN)/python -m pip install --quiet --disable-pip-version-check"; \
  if $$pip --help | grep -q -e --config-settings; then pip="$$pip --config-settings editable_mode=compat"; fi; \
  $$pip -e '$(1)'; fi
endef
