# Every target sets up what it needs; a bare machine with python3, g++ and make is enough.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.pp_precompile_installed
# pip would take the newest torch that the project admits; the suite's numbers are this one's.
TORCH := torch>=2.14.1,<2.15
# A second environment with the newest torch that the project admits; see test-torch215.
VENV215 ?= .venv215
BIN215 := $(VENV215)/bin
STAMP215 := $(VENV215)/.pp_precompile_installed
TORCH215 := torch>=2.15,<2.16
TESTS215 := tests/e2e tests/pipelining tests/runtime tests/stage tests/titan
# Extra arguments for pytest, such as PYTEST_ARGS='tests/store -x'; with -n 0 it runs in one process.
PYTEST_ARGS ?=
# Most jobs of several ranks run in one process, all other tests in a second one: see tests/conftest.py.
SIDE_BY_SIDE := -n 2

.DEFAULT_GOAL := help
.PHONY: help venv toolchain demo test test-torch215 lint format data clean

help: ## say what the targets do
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' Makefile

venv: $(STAMP) ## create .venv and install the package with its development tools

# pip's presence, not python's, shows a finished venv: without ensurepip a broken one is left over.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	  || { echo "python 3.10 or newer is needed: make PYTHON=python3.11 ..." >&2; exit 1; }
	@test -x $(BIN)/pip || { echo "creating $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing pp_precompile and what it needs into $(VENV) (torch is large: minutes)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check '$(TORCH)' -e '.[dev]'
	@touch $@

# Before the install, so that a machine that cannot build hears so at once.
toolchain:
	@$(PYTHON) tools/check_toolchain.py

demo: toolchain $(STAMP) ## build the debug model's stages, train cold and warm, print both times
	@$(BIN)/python -m benchmarks.demo

# One thread a process: the suite starts several ranks side by side, and sums stay reproducible.
test test-torch215: export OMP_NUM_THREADS := 1
test test-torch215: export TOKENIZERS_PARALLELISM := false
test: toolchain $(STAMP) lint ## lint, then run the whole test suite
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) $(PYTEST_ARGS)

test-torch215: toolchain $(STAMP215) ## run the tests of stages and whole jobs on torch 2.15, in .venv215
	@$(BIN215)/python -c 'import torch; print("torch", torch.__version__)'
	$(BIN215)/python -m pytest $(SIDE_BY_SIDE) $(TESTS215) $(PYTEST_ARGS)

$(STAMP215): pyproject.toml
	@test -x $(BIN215)/pip || { echo "creating $(VENV215)"; $(PYTHON) -m venv $(VENV215); }
	@echo "installing pp_precompile and $(TORCH215) into $(VENV215) (minutes)"
	@$(BIN215)/python -m pip install --quiet --disable-pip-version-check '$(TORCH215)' -e '.[dev]' \
	  || { echo "pip could not install $(TORCH215) and the project: its reason is above." >&2; \
	    $(BIN215)/python -m pip config list | grep -i constraint >&2 \
	    && echo "If this constraint caps torch, it has to be lifted for this target." >&2; \
	    exit 1; }
	@touch $@

lint: $(STAMP) ## style, types, spelling, sizes and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell
	$(BIN)/python tools/check_sizes.py

format: $(STAMP) ## rewrite the sources in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

data: $(STAMP) ## make the debug corpus and tokenizer again (same bytes)
	$(BIN)/python -m pp_precompile.models.debug_data.make

clean: ## remove both venvs, caches, build products and the demo's store
	rm -rf $(VENV) $(VENV215) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis \
	  outputs .demo
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
