# Two targets do all the set-up on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

# By the hashes of constraints-hashed.txt, which `make lock` writes. `make test HASHES=no` compares
# versions only, for wheels of another index whose hashes are not in the file. uv installs on all
# cores, from the indexes of pip's settings.
PIP     := $(BIN)/python -m pip install --quiet --no-compile
UV      := eval "$$($(BIN)/python tools/uv_settings.py)" && $(BIN)/uv pip install --quiet \
	--python $(BIN)/python --index-strategy unsafe-best-match
ifeq ($(HASHES),no)
LOCK    := constraints.txt
else
LOCK    := constraints-hashed.txt
UV      += --require-hashes
endif
INSTALL := $(UV) --build-constraint $(LOCK) --excludes tools/excludes.txt \
	--overrides tools/overrides.txt
# What is built from this folder has no hash; all that it requires is installed before.
PROJECT := $(PIP) --no-deps --no-build-isolation --editable .
PINNED  := pyproject.toml constraints.txt constraints-hashed.txt tools/excludes.txt \
	tools/overrides.txt

# A step that failed is not done: a list is written before it is installed.
.DELETE_ON_ERROR:
.PHONY: demo test check lint types pytest format docs lock sbom dist clean

demo: $(VENV)/ready
	$(BIN)/polyglance demo

# Types are checked on one core; on the other, style and layers in seconds, then tests are collected
# and begin as soon as that is done. All are run to their end, and if one fails, so does this.
test: $(VENV)/ready-dev
	$(MAKE) --no-print-directory --jobs 2 --keep-going types lint pytest

check: lint types

lint: $(VENV)/ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(VENV)/ready-dev
	$(BIN)/mypy

# One thread a process: workers with two threads each would fight over two cores. Where a
# test asks for more, threads wait asleep: one that spins keeps the others from work. More workers
# than cores, because tests of servers, kills and several processes wait much of the time; they are
# forks of a process that has imported everything. What is compiled is kept, whatever the machine's
# habit: tests start the command dozens of times.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE

pytest: $(VENV)/ready-dev
	$(PYTEST) $(BIN)/python -m tools.parallel_tests --workers 3

format: $(VENV)/ready-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The documentation site, in site/. MkDocs must be started by Python: its hooks are in tools.
docs: $(VENV)/ready-dev
	NO_MKDOCS_2_WARNING=true $(BIN)/python -m mkdocs build --strict

# Ask the package index for the hashes of all files, after a change of constraints.txt.
lock: $(VENV)/ready-dev
	$(BIN)/python -m tools.lock

# What is installed, as CycloneDX: sbom.cdx.json.
sbom: $(VENV)/ready-dev
	$(BIN)/python -m tools.sbom --extra dev

# The files of a release in dist/: sdist, wheel, checksums and bill of materials, all checked.
dist: $(VENV)/ready-dev
	$(BIN)/python -m tools.dist

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/installers.txt: $(VENV)/bin/python $(PINNED)
	sed -n '/^pip==/,/[^\\]$$/p; /^uv==/,/[^\\]$$/p' constraints-hashed.txt > $@
	$(PIP) --require-hashes --requirement $@

$(VENV)/ready: $(VENV)/installers.txt
	$(BIN)/python tools/requirements.py photos serve > $(VENV)/requirements.txt
	$(INSTALL) --constraint $(LOCK) --requirement $(VENV)/requirements.txt
	$(PROJECT)
# A few files of packages are templates that no Python compiles.
	-$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib
	touch $@

# The hashes of torch are also those of its wheels without CUDA, which satisfy the same pin: where an
# index or a folder has one, 3 GB that no test uses are not installed.
$(VENV)/ready-dev: $(VENV)/installers.txt
	$(BIN)/python tools/requirements.py dev > $(VENV)/requirements-dev.txt
	sed 's/^torch==[^ ]*/&+cpu/' $(LOCK) > $(VENV)/constraints-cpu.txt
	sed 's/^torch==[^ ]*/&+cpu/' $(VENV)/requirements-dev.txt > $(VENV)/requirements-cpu.txt
	$(INSTALL) --constraint $(VENV)/constraints-cpu.txt --requirement $(VENV)/requirements-cpu.txt 2> /dev/null || \
		{ echo "There is no torch without CUDA here: the one with CUDA is installed."; \
		$(INSTALL) --constraint $(LOCK) --requirement $(VENV)/requirements-dev.txt; }
	$(PROJECT)
	touch $@ $(VENV)/ready

clean:
	rm -rf $(VENV) demo-output site
