# Two commands: `make demo` runs the main job, `make test` passes the tests. Both prepare .venv first, and cheaply again.
PYTHON ?= python3
BIN := .venv/bin

# Which torch, and from where:
#   make install                        the one that constraints.txt pins, from the indexes that pip knows
#   make install TORCH_INDEX=https://download.pytorch.org/whl/cpu    that one, from this index: its CPU build, no CUDA
#   make install TORCH=torch            the newest; or any request, as TORCH='torch<2.9'
#   make install TORCH=                 the one that this machine's Python has: .venv sees its packages
PINNED := $(shell grep '^torch==' constraints.txt)
TORCH ?= $(PINNED)
TORCH_INDEX ?=
CONSTRAINTS := $(if $(filter-out $(PINNED),$(or $(TORCH),none)),.venv/constraints.txt,constraints.txt)
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint $(CONSTRAINTS)
# Tests run in one process more than there are cores, because some of them wait for other processes: 4:17 min on two
# cores, 4:46 with two processes. Those of Ray run one after the other: they share one Ray, which has many processes.
# One thread per process: torch with two falls sixfold where another process holds a core.
CORES := $(shell nproc)
JOBS ?= $(shell expr $(CORES) + 1)
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest
PARALLEL := --numprocesses=$(JOBS) --dist=loadfile -m 'not ray'
# Triton checks GPU kernels in its interpreter, so tests install it (1 GB): without its dependencies, and not where torch
# has brought one. Its version is not in constraints.txt, where it would contradict the one that a CUDA torch asks for.
TRITON ?= triton==3.9.0
NATIVE := CMakeLists.txt $(wildcard native/*/*.h native/*/*.cpp native/*/*/*.h native/*/*/*.cpp)

HEADERS := $(filter %.h,$(NATIVE))
TIDY := $(patsubst native/%.cpp,build/tidy/%.checked,$(filter %.cpp,$(NATIVE)))

.PHONY: install triton demo check test test-slow coverage lint tidy stub format bench clean

install: .venv/.installed

# torch first: what follows is content with any, and does not ask for another build. Without a CPU build in its indexes
# pip takes one with gigabytes of CUDA.
.venv/.tools: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(if $(TORCH),,--system-site-packages) .venv
	grep -v '^torch==' constraints.txt > .venv/constraints.txt
	$(if $(TORCH),$(PIP) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) '$(TORCH)')
	$(PIP) cmake nanobind ninja scikit-build-core
	touch $@

.venv/.installed: .venv/.tools $(filter-out native/tests/%,$(NATIVE))
	$(PIP) --no-build-isolation --config-settings=cmake.define.HOTROW_WERROR=ON --editable '.[dev,ray]'
	touch $@

triton: .venv/.triton

.venv/.triton: .venv/.installed
	test "$$(uname -s)" != Linux || $(BIN)/python -c 'import triton' 2> /dev/null || $(PIP) --no-deps '$(TRITON)' \
	  || echo 'Triton could not be installed: tests of kernels are skipped'
	touch $@

demo: install
	$(BIN)/hotrow train examples/demo.toml

# Lint, types and unit tests, with a third of the examples that hypothesis draws otherwise: what to run while working.
check: lint
	HYPOTHESIS_PROFILE=check $(PYTEST) $(PARALLEL) tests/unit tests/sim

# Everything but `slow`: what decides whether a change lands.
test: lint triton
	$(PYTEST) $(PARALLEL) --durations=25
	$(PYTEST) -m ray --durations=15

test-slow: lint triton
	$(PYTEST) $(PARALLEL) --slow --durations=25
	$(PYTEST) -m ray --slow --durations=15

# The least covered files, over the tests that `test` runs.
coverage: install triton
	$(PYTEST) $(PARALLEL) --cov --cov-report=
	$(PYTEST) -m ray --cov --cov-append --cov-report=term --cov-report=html:build/coverage

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(filter %.h %.cpp,$(NATIVE))
	$(BIN)/mypy --num-workers $(CORES)

# clang-tidy, with the checks of .clang-tidy: the workflow runs it beside `lint`. Not part of `lint`: all files take two
# minutes of two cores, which `check` does not have. A stamp per file lets a second run look only at what changed.
tidy: install
	$(BIN)/cmake -S . -B build/tidy -D HOTROW_TESTS=ON -D Python_EXECUTABLE=$(abspath $(BIN)/python) \
	  -D nanobind_DIR=$$($(BIN)/python -m nanobind --cmake_dir) > build/tidy.log
	$(MAKE) --no-print-directory --jobs=$(CORES) $(TIDY)

build/tidy/%.checked: native/%.cpp $(HEADERS) .clang-tidy CMakeLists.txt
	$(BIN)/clang-tidy --quiet -p build/tidy $<
	mkdir -p $(@D) && touch $@

# The types of the native module, from its bindings. A test compares.
stub: install
	$(BIN)/python tests/native_stub.py src/hotrow/_native.pyi

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(filter %.h %.cpp,$(NATIVE))

# TorchRec without its dependencies: they ask for another torch. What its embedding modules import stands beside it.
bench: install
	$(PIP) fbgemm-gpu-cpu
	$(PIP) --no-deps torchrec tensordict pyvers cloudpickle torchmetrics pyre-extensions typing-inspect iopath portalocker
	$(BIN)/hotrow bench store --peer benchmarks/peers/fbgemm_peer.py
	$(BIN)/hotrow bench train --peer benchmarks/peers/torchrec_peer.py

clean:
	rm -rf build .venv
