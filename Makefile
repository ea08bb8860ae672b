# Two commands: `make demo` runs the main job, `make test` passes the tests. Both prepare .venv first, and cheaply again.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt
NATIVE := CMakeLists.txt $(wildcard native/*/*.h native/*/*.cpp native/*/*/*.h native/*/*/*.cpp)

.PHONY: install demo test test-slow lint format bench clean

install: .venv/.installed

# torch first and exactly pinned: any other request for it pulls gigabytes of CUDA.
.venv/.tools: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) torch==2.13.0
	$(PIP) cmake nanobind ninja scikit-build-core
	touch $@

.venv/.installed: .venv/.tools $(NATIVE)
	$(PIP) --no-build-isolation --editable '.[dev]'
	touch $@

demo: install
	$(BIN)/python examples/click_model.py

test: lint
	$(BIN)/python -m pytest

test-slow: lint
	$(BIN)/python -m pytest --slow

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(filter %.h %.cpp,$(NATIVE))
	$(BIN)/mypy

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(filter %.h %.cpp,$(NATIVE))

bench: install
	$(PIP) fbgemm-gpu-cpu
	$(BIN)/hotrow bench store

clean:
	rm -rf build .venv
