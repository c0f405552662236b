# Everything runs in .venv, which the first target that needs it makes. `make help` lists the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Workers for the tests: one a core, at most eight. PYTEST_ARGS adds options: -k conv, -x, ...
WORKERS ?= auto
PYTEST := $(BIN)/pytest -n $(WORKERS) --maxprocesses 8 --dist worksteal

# Tests start hundreds of interpreters. Where no bytecode is written, each compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv demo pack test test-ecosystem test-slow test-numpy test-fused check lint format types clean distclean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | \
		while IFS='|' read -r target text; do printf '%-18s %s\n' "$$target" "$$text"; done

venv: $(VENV)/.made ## make the virtual environment

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 10) or sys.exit("tilewright needs Python 3.10 or newer; $(PYTHON) is " + sys.version.split()[0] + ". Name another: make PYTHON=python3.12")'
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo '$(PYTHON) could not make a virtual environment; on Debian and Ubuntu: apt install python3-venv' >&2; exit 1; }
	@$(PIP) install -q 'pip>=22.3' # older ones can't install in editable mode from pyproject.toml
	@touch $@

$(VENV)/.examples: pyproject.toml | $(VENV)/.made
	$(PIP) install -q -e '.[examples]'
	@$(BIN)/python tools/make_pack.py
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/.made
	$(PIP) install -q -e '.[dev]'
	@$(BIN)/python tools/make_pack.py
	@touch $@

pack: ## write the ready object code and what usual calls compute again, after a change of either
	$(BIN)/python tools/make_pack.py

demo: $(VENV)/.examples ## install, train on handwritten digits, export to ONNX
	$(BIN)/python examples/digits.py

test: $(VENV)/.dev ## install what tests need and run the fast ones
	$(PYTEST) -m 'not slow and not ecosystem' $(PYTEST_ARGS)

test-ecosystem: $(VENV)/.dev ## run packages that need torch, in environments of their own
	$(PYTEST) -n 0 -m ecosystem tests/ecosystem $(PYTEST_ARGS)

test-slow: $(VENV)/.dev ## run the slow tests
	$(PYTEST) -m 'slow and not long' $(PYTEST_ARGS)

test-numpy: $(VENV)/.dev ## run the tests of what computes on the NumPy engine
	TW_CPU=numpy $(PYTEST) -m 'computes and not slow' $(PYTEST_ARGS)

test-fused: $(VENV)/.dev ## run the tests of what computes with every graph compiled
	TW_TIER=fused $(PYTEST) -m 'computes and not slow' $(PYTEST_ARGS)

check: lint test ## all a commit needs: format, lint, types, layering, fast tests

lint: $(VENV)/.dev types ## format, lint and types
	$(BIN)/ruff format --check
	$(BIN)/ruff check

types: $(VENV)/.dev
	@$(BIN)/python tools/link_tree.py --quiet
	$(BIN)/mypy

format: $(VENV)/.dev ## rewrite the sources as `make lint` wants them
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean: ## remove what builds and tests leave behind
	rm -rf build dist out .src *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean ## and the virtual environment
	rm -rf $(VENV)
