# make demo   run the example                  make test      lint, types and the fast tests, one case in eight
# make docs   the site, in build/site: guide, manual, how-tos and the reference of every public name
# make bench  measure against other tools      make test-all  types at run time, more cases, the long run, the mutants
# make bench-everyday, make bench-trace, make bench-gpu  everyday programs; traces; programs on an OpenCL device
# make gradbench GRADBENCH=CHECKOUT  GradBench's evaluations, and tools of its own; QUICK=1: one input of each
# make sweep  every value of every parameter, where the other runs take some: hours, and may be chosen by PYTEST_FLAGS
# make mutants  wrong derivatives, each of which a test must notice (part of test-all)
# make large  all tests of programs over chunks, with a worker killed in each stage of each
# make fuzz SECONDS=600  more random programs, each in a process of its own; .fuzz/log has those that were run
# make test-all-pythons  the unit tests on 3.11, 3.12, 3.13 and the lowest dependencies: what has not passed yet
# make next-python  wheels, byte code and types for a Python with which no test is run yet
# make mutants-backends  the same with a wrong compiler, which takes hours and may be stopped
#
# Each sets up what it needs in .venv, once. PYTHON names another interpreter (3.11 or newer), PYTEST_FLAGS
# go to pytest, ALL=1 takes all cases of each test, WITHIN=1500 ends the long run so many seconds after test-all began,
# ONLY names the lines to measure ("gmm kmeans"), QUICK=1 takes a short look.

PYTHON ?= python3
PYTEST_FLAGS ?= -n auto
VENV := .venv
BIN := $(VENV)/bin
# Processes that tests start would compile the package again and again.
unexport PYTHONDONTWRITEBYTECODE
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.DELETE_ON_ERROR:
.PHONY: help demo docs test lint types unit test-all test-all-pythons next-python checked rest slow sweep large mutants mutants-backends fuzz bench bench-everyday bench-trace bench-gpu gradbench format clean

help:
	@sed -n '/^# make/s/^# //p' Makefile

demo: $(VENV)/.installed-demo
	$(BIN)/python examples/gmm.py

# Not --quiet: MkDocs is strict about the warnings that it prints, and prints none then.
docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

test: lint types unit

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev
	$(BIN)/mypy --strict -p adze

# What takes more than 3 s is told at the end: it may be a sample, or be left to a longer run.
SLOWEST := --durations=10 --durations-min=3
# Where typeguard checks nothing, it is not asked to: modules that call it take longer, even when it is told to rest.
CHECKED := $(BIN)/pytest $(SLOWEST) $(PYTEST_FLAGS)
PLAIN := PYTHONPYCACHEPREFIX=$(CURDIR)/.pytest_cache/plain $(BIN)/pytest --typeguard-packages= $(SLOWEST) $(PYTEST_FLAGS)
# pytest exits with 5 when it selects no test.
OR_NONE := || { status=$$?; test $$status -eq 5 && echo "no test is selected here" || exit $$status; }

unit: $(VENV)/.installed-dev
	@$(PLAIN) -m "not slow and not guarded $(if $(ALL),,and not rest and not sweep)" $(OR_NONE)

# One after the other, since each takes all processors.
test-all:
	$(MAKE) checked
	$(MAKE) rest
	$(MAKE) slow $(if $(WITHIN),WITHIN=$$(($(WITHIN) - $$(date +%s) + $(shell date +%s))))
	$(MAKE) mutants

checked: $(VENV)/.installed-dev
	@$(CHECKED) -m "not slow and not rest and not sweep and not unguarded" $(OR_NONE)

rest: $(VENV)/.installed-dev
	@$(PLAIN) -m "rest and not slow" $(OR_NONE)

slow: $(VENV)/.installed-dev
	@$(PLAIN) -m "slow and not sweep" --hypothesis-profile=long $(if $(WITHIN),--within $(WITHIN)) $(OR_NONE)

sweep: $(VENV)/.installed-dev
	@$(PLAIN) -m sweep --hypothesis-profile=sweep $(OR_NONE)

large: $(VENV)/.installed-dev
	@$(PLAIN) tests/backends/chunked tests/solvers/test_chunked_least_squares.py $(OR_NONE)

mutants: $(VENV)/.installed-dev
	$(BIN)/python tests/mutants

test-all-pythons:
	@$(PYTHON) tests/pythons.py $(PYTEST_FLAGS)

next-python: $(VENV)/.installed-dev
	@$(BIN)/python tests/pythons.py --next

fuzz: $(VENV)/.installed-dev
	PYTHONPATH=$(CURDIR):tests $(BIN)/python -m fuzz --seconds $(or $(SECONDS),60) $(FUZZ)

bench: $(VENV)/.installed-peers
	$(BIN)/python benchmarks/run.py $(ONLY) $(if $(QUICK),--quick)

bench-everyday: $(VENV)/.installed-peers
	$(BIN)/python benchmarks/run.py --everyday $(ONLY) $(if $(QUICK),--quick)

bench-trace: $(VENV)/.installed-peers
	$(BIN)/python benchmarks/trace.py

bench-gpu: $(VENV)/.installed-peers
	$(BIN)/python benchmarks/gpu.py --peers

# The golden implementation says what is valid.
gradbench: $(VENV)/.installed-gradbench
	@test -n "$(GRADBENCH)" || { echo "make gradbench GRADBENCH=CHECKOUT: a copy of https://github.com/gradbench/gradbench"; exit 2; }
	$(MAKE) -C $(GRADBENCH)/cpp
	$(MAKE) -C $(GRADBENCH)/tools/manual -Bj NATIVE=no
	$(BIN)/python benchmarks/gradbench/compare.py $(GRADBENCH) $(if $(ONLY),--only $(ONLY)) $(if $(QUICK),--first 1 --rounds 1 --tools manual)

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Hours: 400 mutants of the compiler. It goes on where it was stopped, unless sources or tests have changed.
mutants-backends: $(VENV)/.installed-dev
	$(BIN)/python tests/mutants --backends $(ONLY)

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Set-up: the environment, then one stamp for each set of packages. A change of pyproject.toml repeats it.

$(VENV)/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Adze needs Python 3.11 or newer: make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-demo: $(VENV)/pyvenv.cfg pyproject.toml
	$(PIP_INSTALL) -e .
	@touch $@

# PyTorch without what it needs for GPUs.
$(VENV)/.installed-peers $(VENV)/.installed-gradbench $(VENV)/.installed-torch $(VENV)/.installed-interop: export PIP_EXTRA_INDEX_URL := https://download.pytorch.org/whl/cpu

$(VENV)/.installed-%: $(VENV)/pyvenv.cfg pyproject.toml
	$(PIP_INSTALL) -e '.[$*]'
	@touch $@
