# make demo   install everything into .venv and run the main job end to end on a simulated bench
#             (make demo ARGS='--ports 4 --seed 1')
# make test   install everything into .venv and run the tests
# make bench  install other libraries too and compare mesh engine and drivers with them (make bench ARGS=--quick)
# make lint   style and import rules      make types   mypy --strict
# make clean  remove .venv, caches and the demo's report

# A Python of at least 3.11; another one: make PYTHON=/path/to/python test
PYTHON ?= $(shell for name in python3.11 python3 python3.12 python3.13 python; do \
	if $$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo $$name; break; fi; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
BENCH_STAMP := $(VENV)/.bench_installed
# Matrices here are small: with more threads than one, numpy and torch wait more than they work.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
export MKL_NUM_THREADS ?= 1

.PHONY: bench demo test lint types install clean
.DEFAULT_GOAL := install

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "No Python of at least 3.11 found; install one or run: make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$(PYTHON) is older than Python 3.11; run: make PYTHON=/path/to/python" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[demo,test]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps LabExT_pkg==2.3.1 Instrumental-lib==0.8
	touch $@

demo: $(STAMP)
	$(BIN)/optinc demo $(ARGS)

test: $(STAMP)
	$(BIN)/python -m pytest -n 2

bench: $(BENCH_STAMP)
	$(BIN)/python benchmarks/mesh.py $(ARGS)
	$(BIN)/python benchmarks/instruments.py $(ARGS)

$(BENCH_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	touch $@

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --exclude '*.md' .
	$(BIN)/lint-imports

types: $(STAMP)
	$(BIN)/mypy

clean:
	rm -rf $(VENV) demo_report .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
