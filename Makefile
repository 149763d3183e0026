# Two commands for a fresh machine with Python 3.11 or later, a JDK 17 or later and Maven: `make demo` and `make test`.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: demo test test-all check install clean

demo: $(READY)
	$(BIN)/sira-es demo

test: $(READY) check
	$(BIN)/pytest -m "not slow"

test-all: $(READY) check
	$(BIN)/pytest

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry .

install: $(READY)

$(READY): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "sira-es needs Python 3.11 or later; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $(READY)

clean:
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache
