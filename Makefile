# Two targets do all the set-up on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

# pip compiles one file after another, this on as many cores as it is given. A few files of
# packages are templates that no Python compiles.
INSTALL := $(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt
COMPILE := -$(BIN)/python -m compileall -qq $(VENV)/lib
# Half of what the packages contain, and the tests import next to none of it: Python compiles
# that when it is imported.
UNUSED  := /(tests?|testing|transformers/models|_inductor|rllib|tune|serve|dashboard|pandas|sklearn|networkx|jieba|mypyc?|pip|setuptools|narwhals|pygments)/

.PHONY: demo test check pytest format clean

demo: $(VENV)/ready
	$(BIN)/polyglance demo

# Types are checked on one core: meanwhile packages are compiled on the other.
test: $(VENV)/ready-dev
	$(MAKE) --no-print-directory -j 2 check $(VENV)/compiled
	$(MAKE) --no-print-directory pytest

check: $(VENV)/ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# One thread a process: two workers with two threads each would fight over two cores. Where a
# test asks for more, threads wait asleep: one that spins keeps the others from work. What is
# compiled is kept, whatever the machine's habit: tests start the command dozens of times.
pytest: $(VENV)/compiled
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE \
		$(BIN)/pytest -n 2 --dist worksteal

format: $(VENV)/ready-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/ready: $(VENV)/bin/python pyproject.toml constraints.txt
	$(INSTALL) --editable .
	$(COMPILE) -j 0
	touch $@

$(VENV)/ready-dev: $(VENV)/bin/python pyproject.toml constraints.txt
	$(INSTALL) --editable '.[dev]'
	touch $@ $(VENV)/ready

$(VENV)/compiled: $(VENV)/ready-dev
	$(COMPILE) -x '$(UNUSED)'
	touch $@

clean:
	rm -rf $(VENV) demo-output
