# `make demo` and `make test` each set a fresh machine up by themselves: Python >= 3.11, pip and make are enough.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test lint types layers pytest acceptance benchmarks docs format clean

# A private model of the breast-cancer data that scikit-learn ships: certificate, model and report page.
demo: $(READY)
	rm -rf demo
	$(BIN)/antiphon train --out demo
	@echo "Open demo/report.html in a browser."

test: lint types layers pytest

lint: $(READY)
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .

types: $(READY)
	$(BIN)/mypy --no-error-summary

layers: $(READY)
	$(BIN)/lint-imports --no-logo >$(VENV)/layers.log || (cat $(VENV)/layers.log; exit 1)

# One thread for each worker: two that share two cores wait for each other.
pytest: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal -rs -m "not slow and not data"

# Every acceptance check of the specifications, and everything else that is slow, as a table.
acceptance: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal -m "" -k "acceptance or slow" -vv --durations=0

benchmarks: $(READY)
	$(BIN)/python benchmarks/imports.py
	$(BIN)/python benchmarks/randomness.py
	$(BIN)/python benchmarks/noise.py
	$(BIN)/python benchmarks/relu.py
	$(BIN)/python benchmarks/optimize.py
	$(BIN)/python benchmarks/accounting.py
	$(BIN)/python benchmarks/splines.py
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/kan.py
	$(BIN)/python benchmarks/cnn.py

# The documentation as a site, in site/; tests/journeys/test_site.py builds it, too.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "open site/index.html"

format: $(READY)
	$(BIN)/ruff format --quiet .
	$(BIN)/ruff check --fix --quiet .

clean:
	rm -rf $(VENV) demo dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Antiphon needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.11 ...")'
	@echo "Setting up $(VENV) (once; a few minutes) ..."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@
