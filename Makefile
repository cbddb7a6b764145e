# Each target is enough on a fresh machine: it needs Python 3.11 or newer, make, and a network for packages.
# The virtual environment is made once; it is brought up to date when pyproject.toml changes.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help demo test lint bench clean

help:
	@echo "make demo   fuse the packaged portrait into the packaged clip: lethe-demo/"
	@echo "make test   the quick tests"
	@echo "make lint   ruff and mypy"
	@echo "make bench  the measurements of benchmarks/ (minutes; best on a quiet machine)"
	@echo "make clean  remove what the other targets made, but for $(VENV)"

demo: $(VENV)/.has-cpu
	$(BIN)/lethe demo

test: $(VENV)/.has-dev
	$(BIN)/python -m pytest -m "not slow"

lint: $(VENV)/.has-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/mypy benchmarks scripts

bench: $(VENV)/.has-dev
	$(BIN)/python -m benchmarks.untouched
	$(BIN)/python -m benchmarks.throughput
	$(BIN)/python -m benchmarks.memory
	$(BIN)/python -m benchmarks.bulk
	$(BIN)/python -m benchmarks.vault
	$(BIN)/python -m benchmarks.lookup
	$(BIN)/python -m benchmarks.identity
	$(BIN)/python -m benchmarks.expression

clean:
	rm -rf build dist *.egg-info lethe-demo benchmarks/out
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path "./$(VENV)/*" -prune -exec rm -rf {} +

$(BIN)/pip:
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" 2>/dev/null || \
	  { echo "Python 3.11 or newer is needed and $(PYTHON) is not: make PYTHON=python3.12 TARGET" >&2; exit 1; }
	@$(PYTHON) -c "import ensurepip, venv" 2>/dev/null || \
	  { echo "$(PYTHON) cannot make virtual environments: install python3-venv (Debian, Ubuntu)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.has-cpu: pyproject.toml | $(BIN)/pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[cpu]"
	@touch $@

$(VENV)/.has-dev: pyproject.toml | $(BIN)/pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[cpu,dev]"
	@touch $(VENV)/.has-cpu $@
