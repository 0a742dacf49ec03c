# make run        diagnose this machine (ARGS="--json --tag fast" passes arguments on)
# make check      style, types and laws: ruff, mypy --strict, make lint
# make lint       laws about all sources: which rooms know each other, words, expressions
# make test       the tests to run before and after a change; they need gcc and no GPU (ARGS=tests/checks/rdma/test_ib.py: some)
# make test-slow  tests that wait for time limits, start many processes or build what is shipped
# make nightly    all that the others leave out: slow tests, races, property tests, mutations, soak; SHARE=2/8: an eighth of it
# make test-real  suites that need torch, Ray, Slurm, ibsim, chromium ...; says which did not run and why
# make hardware   on a machine with a GPU: five minutes of the single file and a Python with torch, kept in one archive
# make trial      tests that could lose a race, and healthy nodes in pairs, TIMES=20 times
# make fuzz       every property test with EXAMPLES=2000; MINUTES=30: every parser, reader, archive and view for its share
# make mutations  does make test notice eleven changes that must not be made? COUNT=40: changes drawn at random
# make soak       RUNS=1000 runs, minutes of watching, REPORTS=10000 reports: nothing may grow or be left behind
# make bench      what a run costs on this machine, beside what others cost
# make pyz        the single file dist/nodedoctor.pyz for nodes without network
# make packages   wheel and source distribution in dist/, checked, and installed in empty environments
# make docs       what pages are made of: pictures, outputs, a page for each check and table, in build/docs/
# make site       the documentation as a site in build/site/, with no dead link
# make release    VERSION=x.y.z: changelog, version and tag on this clone; pushes nothing; --dry-run changes nothing
# make knowledge  compare the pins in the knowledge tables with the package index
# make strings    every string a person can read, with its place (ARGS=checks/gpu: some)
# make clean      remove what the above made
# Each sets up .venv on a bare machine, with uv when it is there, else with python3's venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# The Python of the real suites; `make .venv-real/.made` fills it.
REAL := .venv-real

# One worker more than there are cores, because some tests wait; with ARGS none: few tests start sooner alone.
WORKERS ?= $(shell cores=$$(nproc); if [ $$cores -lt 8 ]; then echo $$((cores + 1)); else echo 8; fi)
PARALLEL = $(if $(ARGS),,-n $(WORKERS) --dist worksteal)

# Real jobs mostly wait.
REAL_WORKERS ?= $(shell echo $$(($$(nproc) + 1)))

TIMES ?= 20
REAL_TIMES ?= $(TIMES)
EXAMPLES ?= 2000
COUNT ?=
RUNS ?= 1000
SECONDS_WATCHED ?= 600
REPORTS ?= 10000

# K/N: of what make nightly runs, the K-th of N shares.
SHARE ?=
IN_SHARE = $(if $(SHARE),--share=$(SHARE))

# Without compiled files every run would parse our modules again.
unexport PYTHONDONTWRITEBYTECODE

MINUTES ?=

.DEFAULT_GOAL := help
.PHONY: .properties help run check lint test test-slow nightly test-real hardware trial fuzz mutations soak bench docs site pyz packages release knowledge strings clean

help:
	@sed -n -e 's/^# \(make \)/\1/p' -e 's/^# \(Each sets\)/\1/p' Makefile

run: $(VENV)/.run
	@$(BIN)/nodedoctor $(ARGS)

check: $(VENV)/.dev
	$(BIN)/ruff check nodedoctor checks tests docs tools
	$(BIN)/ruff format --check nodedoctor checks tests docs tools
	$(BIN)/mypy
	@$(MAKE) lint

# In one process, and all of them in one folder: another one would import all tests first.
lint: $(VENV)/.dev
	$(BIN)/pytest -m "lint and not nightly" $(or $(ARGS),tests/tools)

test: $(VENV)/.dev
	NODEDOCTOR_EXAMPLES=$${NODEDOCTOR_EXAMPLES:-10} $(BIN)/pytest -m "not real and not slow and not nightly and not lint" $(PARALLEL) $(ARGS)

# Slow property tests are those of make fuzz.
test-slow: $(VENV)/.dev
	$(BIN)/pytest -m "(slow or nightly) and not hypothesis and not real" $(IN_SHARE) $(PARALLEL) $(ARGS)

# Goes on after a part that failed, so that one night tells all.
NIGHTLY = test-slow trial fuzz mutations soak
nightly: $(VENV)/.dev
	@failed=; for part in $(NIGHTLY); do \
	  echo "== $$part"; began=$$(date +%s); \
	  $(MAKE) --no-print-directory $$part || failed="$$failed $$part"; \
	  echo "== $$part took $$(($$(date +%s) - began)) s"; \
	done; [ -z "$$failed" ] || { echo "failed:$$failed" >&2; exit 1; }

# What .ci/run installs, where it is there: the single file, and a Python with torch and Ray.
define WITH_REAL
	if [ -e $(REAL)/.made ]; then \
	  export NODEDOCTOR_TORCH_PYTHON=$${NODEDOCTOR_TORCH_PYTHON:-$(CURDIR)/$(REAL)/bin/python}; \
	  export NODEDOCTOR_RAY_PYTHON=$${NODEDOCTOR_RAY_PYTHON:-$(CURDIR)/$(REAL)/bin/python}; \
	  export NODEDOCTOR_NCCL_WHEELS=$${NODEDOCTOR_NCCL_WHEELS:-$(CURDIR)/$(REAL)/nccl-old:$(CURDIR)/$(REAL)/nccl-new}; \
	fi;
endef

# First what may run side by side, then what measures rates and time limits: two groups, which mostly wait.
test-real: $(VENV)/.dev
	$(WITH_REAL) failed=; \
	$(BIN)/pytest -m "real and not alone" -rs -n $(REAL_WORKERS) --dist loadgroup $(ARGS) || [ $$? -eq 5 ] || failed=1; \
	$(BIN)/pytest -m "real and alone" -rs -n 2 --dist loadgroup $(ARGS) || [ $$? -eq 5 ] || failed=1; [ -z "$$failed" ]

# Needs nothing but the single file and whatever Python with torch is there; CONTRIBUTING.md says what it does.
hardware: dist/nodedoctor.pyz
	@$(WITH_REAL) tools/hardware/run.sh $(ARGS)

trial: $(VENV)/.dev
	$(BIN)/pytest -m "race and not real" --times=$(TIMES) $(IN_SHARE) $(PARALLEL) $(ARGS) || [ $$? -eq 5 ]
	$(if $(filter 0,$(REAL_TIMES)),,$(WITH_REAL) $(BIN)/pytest -m "race and real" -rs --times=$(REAL_TIMES) $(IN_SHARE) $(ARGS) || [ $$? -eq 5 ])

# With MINUTES of CPU time, by atheris where that is installed, with figures for each target.
fuzz: $(VENV)/.dev
	$(if $(MINUTES),$(BIN)/python tests/fuzz/run.py --minutes $(MINUTES) $(ARGS),$(MAKE) .properties)

.properties: $(VENV)/.dev
	NODEDOCTOR_EXAMPLES=$(EXAMPLES) $(BIN)/pytest -m "hypothesis and not real" $(IN_SHARE) $(PARALLEL) $(ARGS)

# With COUNT, that many changes of the judging core drawn at random, each against the tests of its room.
mutations: $(VENV)/.dev
	$(BIN)/python tools/mutations/$(if $(COUNT),drawn.py --count $(COUNT),run.py $(IN_SHARE)) $(ARGS)

soak: $(VENV)/.dev
	$(BIN)/python tests/bench/soak.py --runs $(RUNS) --seconds $(SECONDS_WATCHED) --reports $(REPORTS) $(ARGS)

bench: $(VENV)/.dev
	$(BIN)/python tests/bench/bench.py $(ARGS)

# Pictures of the terminal interface, from the recorded nodes; what the commands in pages print; pages from docstrings
# and tables. Of all this only the README's picture is kept in the repository.
docs: $(VENV)/.dev
	rm -rf build/docs
	$(BIN)/python docs/pictures.py build/docs/pictures
	$(BIN)/python docs/blocks.py build/docs/output
	$(BIN)/python docs/pages.py build/docs

# Carries the single file and the wheel, so that it is all that a stranger needs: those in dist/, made if there are none.
site: $(VENV)/.publish docs dist/nodedoctor.pyz dist/.packages
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --clean
	$(BIN)/python tools/site/links.py build/site

# The single file dist/nodedoctor.pyz for nodes without network; needs the package index for its wheels, once.
pyz: $(VENV)/.dev
	@$(BIN)/python tools/pyz/build.py $(ARGS)

dist/nodedoctor.pyz:
	@$(MAKE) pyz

packages: $(VENV)/.publish
	rm -rf dist/*.whl dist/*.tar.gz build/lib build/bdist* *.egg-info
	$(BIN)/python -m build --no-isolation --outdir dist . >build.log 2>&1 || { cat build.log; exit 1; }; rm -f build.log
	$(BIN)/twine check --strict dist/*.whl dist/*.tar.gz
	$(BIN)/check-wheel-contents dist/*.whl
	$(BIN)/python tools/release/installs.py dist
	$(BIN)/hadolint docs/recipes/kubernetes/Dockerfile
	$(BIN)/kubernetes-validate --strict --quiet docs/recipes/kubernetes/*.yaml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml docs/recipes/ci/github-node-health.yaml
	@touch dist/.packages

dist/.packages:
	@$(MAKE) packages

# Also under `make --dry-run`, which make itself would take for "print what would be run".
release:
	+@$(PYTHON) tools/release/cut.py "$(VERSION)" $(if $(findstring n,$(firstword -$(MAKEFLAGS))),--dry-run) $(ARGS)

# Compares the pins in the knowledge tables with the package index; ARGS=--write adds new releases.
knowledge: $(VENV)/.dev
	$(BIN)/python tools/knowledge/refresh.py $(ARGS)

# The whole voice of the product, to be read in one go; nothing of it is kept.
strings: $(VENV)/.dev
	@$(BIN)/python tools/wording/collect.py $(ARGS)

clean:
	rm -rf $(VENV) $(REAL) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .bench

$(VENV)/bin/python:
	@if command -v uv >/dev/null 2>&1; then uv venv --quiet --python ">=3.10" $(VENV); \
	else \
	  $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || \
	    { echo "nodedoctor needs Python 3.10 or newer: found $$($(PYTHON) --version 2>&1). Set PYTHON=, or install uv."; exit 1; }; \
	  $(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	    { echo "$(PYTHON) cannot make virtual environments. Install the package python3-venv (apt-get install python3-venv), or uv."; exit 1; }; \
	  $(PYTHON) -m venv $(VENV); \
	fi

# By pip, which finds the CPU build of torch where one lies on a local index.
PIP = $(REAL)/bin/python -m pip install --quiet --disable-pip-version-check

$(REAL)/.made: tests/real/requirements.txt
	$(PYTHON) -m venv --clear $(REAL)
	$(PIP) -r $<
	$(PIP) --no-deps --target $(REAL)/nccl-old nvidia-nccl-cu12==2.19.3
	$(PIP) --no-deps --target $(REAL)/nccl-new nvidia-nccl-cu12==2.27.5
	@touch $@

$(VENV)/.run: $(VENV)/bin/python pyproject.toml
	@$(call install,.)
	@touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml
	@$(call install,.[dev])
	@touch $@ $(VENV)/.run

# What checks, builds and publishes what is shipped; tests need none of it.
$(VENV)/.publish: $(VENV)/.dev pyproject.toml
	@$(call install,.[publish])
	@touch $@

# compat: a plain path entry. The default import hook costs every interpreter 10 ms, our children included.
# (pip before 22.1 cannot be told, and Ubuntu 22.04 has that: there the hook it is.)
define install
if command -v uv >/dev/null 2>&1; then uv pip install --quiet --python $(BIN)/python -C editable_mode=compat -e '$(1)'; else \
  pip="$(BIN)/python -m pip install --quiet --disable-pip-version-check"; \
  if $$pip --help | grep -q -e --config-settings; then pip="$$pip --config-settings editable_mode=compat"; fi; \
  $$pip -e '$(1)'; fi
endef
