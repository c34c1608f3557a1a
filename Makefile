# Two targets do all the set-up on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

# By the hashes of constraints-hashed.txt, which `make lock` writes. `make test HASHES=no` compares
# versions only, for wheels of another index whose hashes are not in the file. pip would compile all
# files, one after another.
PIP     := $(BIN)/python -m pip install --quiet --no-compile
ifeq ($(HASHES),no)
INSTALL := $(PIP) --constraint constraints.txt --build-constraint constraints.txt
else
INSTALL := $(PIP) --require-hashes --constraint constraints-hashed.txt --build-constraint constraints-hashed.txt
endif
# What is built from this folder has no hash; all that it requires is installed before.
PROJECT := $(PIP) --no-deps --no-build-isolation --editable .
PINNED  := pyproject.toml constraints.txt constraints-hashed.txt

# A step that failed is not done: pip.txt is written before pip is installed by it.
.DELETE_ON_ERROR:
.PHONY: demo test check lint types pytest format lock sbom clean

demo: $(VENV)/ready
	$(BIN)/polyglance demo

# What is checked in seconds comes first. Then types are checked on one core while tests are
# collected on the other, where they begin as soon as that is done. Both are run to their end, and if
# one fails, so does this.
test: $(VENV)/ready-dev
	$(MAKE) --no-print-directory lint
	$(MAKE) --no-print-directory --jobs 2 --keep-going types pytest

check: lint types

lint: $(VENV)/ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(VENV)/ready-dev
	$(BIN)/mypy

# One thread a process: workers with two threads each would fight over two cores. Where a
# test asks for more, threads wait asleep: one that spins keeps the others from work. More workers
# than cores, because tests of servers, kills and several processes wait much of the time. What is
# compiled is kept, whatever the machine's habit: tests start the command dozens of times.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE $(BIN)/pytest

pytest: $(VENV)/collected
	$(PYTEST) -n 3 --dist worksteal

format: $(VENV)/ready-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Ask the package index for the hashes of all files, after a change of constraints.txt.
lock: $(VENV)/ready-dev
	$(INSTALL) uv
	$(BIN)/python -m tools.lock

# What is installed, as CycloneDX: sbom.cdx.json.
sbom: $(VENV)/ready-dev
	$(BIN)/python -m tools.sbom --extra dev

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# Earlier versions of pip do not take hashes from constraints.
$(VENV)/pip.txt: $(VENV)/bin/python $(PINNED)
	sed -n '/^pip==/,/[^\\]$$/p' constraints-hashed.txt > $@
	$(PIP) --require-hashes --requirement $@

$(VENV)/ready: $(VENV)/pip.txt
	$(BIN)/python tools/requirements.py photos > $(VENV)/requirements.txt
	$(INSTALL) --requirement $(VENV)/requirements.txt
	$(PROJECT)
# A few files of packages are templates that no Python compiles.
	-$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib
	touch $@

# pip prefers a file whose hash an index states to a wheel in a folder of --find-links, and so takes
# torch with CUDA, whose 3 GB no test uses. One without, which satisfies the same pin and has its
# hash among the same hashes, is asked for first.
$(VENV)/ready-dev: $(VENV)/pip.txt
	sed -n '/^torch==/,/[^\\]$$/p' constraints-hashed.txt | sed 's/^torch==[^ ]*/&+cpu/' > $(VENV)/torch-cpu.txt
	$(PIP) --require-hashes --no-deps --requirement $(VENV)/torch-cpu.txt 2> /dev/null || \
		echo "pip finds no torch without CUDA here: the one with CUDA is installed"
	$(BIN)/python tools/requirements.py dev > $(VENV)/requirements-dev.txt
	$(INSTALL) --requirement $(VENV)/requirements-dev.txt
	$(PROJECT)
	touch $@ $(VENV)/ready

# One process compiles what tests import, rewrites their assertions and lets Hypothesis read the
# constants of the code; the workers then find that done, which each would do on its own. An error
# here is one of the tests, which report it.
$(VENV)/collected: $(VENV)/ready-dev
	-$(PYTEST) --collect-only -qq > /dev/null
	touch $@

clean:
	rm -rf $(VENV) demo-output
