# `make demo` and `make test` are all a fresh machine with Python 3.11 or newer needs.

PYTHON ?= python3
VENV ?= .venv
RUN := $(VENV)/bin
DEMO ?=
BENCH ?=
# Processes that run tests side by side; those that time things want a core each.
JOBS ?= 2

.PHONY: demo test lint tests test-real-engine bench clean

demo: $(VENV)/.run
	$(RUN)/replicarouter demo $(DEMO)

test: lint tests

lint: $(VENV)/.dev
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy

tests: $(VENV)/.dev
	$(RUN)/python -m pytest -n $(JOBS) --dist worksteal

# Real vLLM on this machine's CPU: about a minute of set-up and 2.3 GB of disk at the first time.
test-real-engine: $(VENV)/.dev
	$(RUN)/python tests/real_engine/build_venv.py
	$(RUN)/python -m pytest -m real_engine tests/real_engine

bench: $(VENV)/.dev
	$(RUN)/python -m benchmarks.compare $(BENCH)

clean:
	rm -rf $(VENV)

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "replicarouter needs Python 3.11 or newer; name one with: make PYTHON=python3.12 …"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: pyproject.toml | $(VENV)/bin/python
	$(RUN)/python -m pip install --quiet --upgrade pip
	$(RUN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	$(RUN)/python -m pip install --quiet --upgrade pip
	$(RUN)/python -m pip install --quiet --editable . --group dev
	@touch $@ $(VENV)/.run
