# `make` builds .venv by itself from any Python 3.11-3.13 and reuses it while pyproject.toml is unchanged.
# PYTHON=/path/to/python3 picks the interpreter.
SHELL := /bin/bash
.DELETE_ON_ERROR:
.PHONY: demo test test-all test-lowest test-wheel fuzz mutate lock check format bench docs clean

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LOCK := .ci/locked.txt
DOCS_STAMP := $(VENV)/.installed-docs
SUITABLE := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
CANDIDATES := $(PYTHON) python3 python3.13 python3.12 python3.11

demo: $(STAMP)
	$(BIN)/permvi demo --out out/demo

# Most of the tests' time goes into compiling code that runs once, so it is compiled with few optimisations, and by flags
# that halve the time if this version of XLA knows them. test-all runs what users run.
QUICK_FLAGS := --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1
QUICK = XLA_FLAGS="$$flags" JAX_DISABLE_MOST_OPTIMIZATIONS=1
# Each worker begins with half of the tests, in order, and takes over from the other what is left at the end.
PYTEST := $(BIN)/pytest -n 2 --dist worksteal -q

test: $(STAMP)
	@flags="$(QUICK_FLAGS)"; \
	XLA_FLAGS="$$flags" $(BIN)/python -c "import jax; jax.devices()" 2>/dev/null || flags=""; \
	set -ex; \
	$(QUICK) $(PYTEST) -m "not slow"; \
	$(QUICK) JAX_ENABLE_X64=0 $(PYTEST) -m "float32 and not slow"

test-all: $(STAMP)
	$(PYTEST)
	JAX_ENABLE_X64=0 $(PYTEST) -m float32

# The lowest versions that pyproject.toml allows; sdist and wheel in empty environments of each Python that is here.
test-lowest:
	.ci/test-lowest -n 2 --dist worksteal

test-wheel:
	@set -e; for python in $(if $(PYTHON),$(PYTHON),python3.11 python3.12 python3.13); do \
	  if $$python -c '$(SUITABLE)' 2>/dev/null; then PYTHON=$$python .ci/test-wheel; else echo "no $$python here"; fi; \
	done

# Breaks 30 places on purpose, one at a time, and shows which tests notice.
mutate: $(STAMP)
	@flags="$(QUICK_FLAGS)"; \
	XLA_FLAGS="$$flags" $(BIN)/python -c "import jax; jax.devices()" 2>/dev/null || flags=""; \
	$(QUICK) $(BIN)/python -m tests.mutants

# EXAMPLES of each property, for all methods; failures are kept in .fuzz and tried first the next time.
EXAMPLES := 200
fuzz: $(STAMP)
	PERMVI_FUZZ=$(EXAMPLES) JAX_ENABLE_X64=0 $(BIN)/pytest -n 2 -q tests/properties

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The versions that `make` installs for development, found anew; pyproject.toml says what users may have.
lock: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --dry-run --ignore-installed \
	  --report .venv/report.json ".[dev]"
	$(BIN)/python -c "import json; found = json.load(open('.venv/report.json'))['install']; \
	  pins = sorted((m['metadata']['name'].lower() + '==' + m['metadata']['version']) for m in found); \
	  print('\n'.join(p for p in pins if not p.startswith('permvi==')))" > $(LOCK)

bench: $(STAMP)
	$(BIN)/permvi bench --json out/bench.json

# Executes the notebooks and draws the gallery. MkDocs counts no warnings with --quiet.
docs: $(DOCS_STAMP)
	$(BIN)/pytest -q tests/test_docs.py -k public_name
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

$(DOCS_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[docs]"
	@touch $@

$(STAMP): pyproject.toml $(LOCK)
	@python=""; for candidate in $(CANDIDATES); do \
	  if "$$candidate" -c '$(SUITABLE)' 2>/dev/null; then python="$$candidate"; break; fi; \
	done; \
	if [ -z "$$python" ]; then echo "permvi needs Python 3.11, 3.12 or 3.13; tried: $(CANDIDATES)" >&2; exit 2; fi; \
	if ! $(BIN)/python -c '$(SUITABLE)' 2>/dev/null; then "$$python" -m venv --clear $(VENV); fi
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(LOCK) --editable ".[dev]"
	@touch $@

clean:
	rm -rf $(VENV) .venv-lowest out site build dist
