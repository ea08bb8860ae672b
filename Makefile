# Two commands: `make demo` runs the main job, `make test` passes the tests. Both prepare .venv first, and cheaply again.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt
# One thread per process: torch with two falls sixfold where another process holds a core.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses=$(JOBS) --dist=loadgroup
JOBS ?= $(shell nproc)
NATIVE := CMakeLists.txt $(wildcard native/*/*.h native/*/*.cpp native/*/*/*.h native/*/*/*.cpp)

.PHONY: install demo check test test-slow coverage lint format bench clean

install: .venv/.installed

# torch first and exactly pinned: any other request for it pulls gigabytes of CUDA.
.venv/.tools: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) torch==2.13.0
	$(PIP) cmake nanobind ninja scikit-build-core
	touch $@

.venv/.installed: .venv/.tools $(NATIVE)
	$(PIP) --no-build-isolation --editable '.[dev,ray]'
	touch $@

demo: install
	$(BIN)/hotrow train examples/demo.toml

# Lint, types and unit tests: what to run while working.
check: lint
	$(PYTEST) tests/unit tests/sim

# Everything but `slow`: what decides whether a change lands.
test: lint
	$(PYTEST) --durations=25

test-slow: lint
	$(PYTEST) --slow --durations=25

# The least covered files, over the tests that `test` runs.
coverage: install
	$(PYTEST) --cov --cov-report=term --cov-report=html:build/coverage

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(filter %.h %.cpp,$(NATIVE))
	$(BIN)/mypy

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(filter %.h %.cpp,$(NATIVE))

# TorchRec without its dependencies: they ask for another torch. What its embedding modules import stands beside it.
bench: install
	$(PIP) fbgemm-gpu-cpu
	$(PIP) --no-deps torchrec tensordict pyvers cloudpickle torchmetrics pyre-extensions typing-inspect iopath portalocker
	$(BIN)/hotrow bench store
	$(BIN)/hotrow bench train

clean:
	rm -rf build .venv
