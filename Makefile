# make demo and make test need Python 3.10 or newer, a C and C++ compiler and make; the rest is set up in .venv.
#   make PYTHON=python3.12 test    another interpreter (after make clean)
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
LOG := build/setup.log
PIP := $(PY) -m pip install --disable-pip-version-check
NO_NETWORK = { echo "funcgrad: pip could not install $(1): connect to a network with a Python package index, which is needed once ($(LOG) says more)." >&2; exit 1; }

.PHONY: venv demo test lint format docs notebooks test-peers test-ggml test-vulkan peers-torch bench bench-quick wheel clean
.DELETE_ON_ERROR:

# The stamps are touched last, so that a half-done set-up is done again.
venv: $(VENV)/.installed
	@$(PY) build_ffi.py

$(VENV)/.python:
	@command -v $(PYTHON) > /dev/null || { echo "funcgrad: $(PYTHON) was not found: install Python 3.10 or newer." >&2; exit 1; }
	@$(PYTHON) build_ffi.py check
	@mkdir -p build
	@$(PY) -c "" 2>/dev/null || { echo "funcgrad: creating $(VENV)"; $(PYTHON) -m venv --clear $(VENV) > $(LOG) 2>&1; } \
		|| { echo "funcgrad: $(PYTHON) -m venv failed: install Python's venv module (Debian and Ubuntu: apt install python3-venv)." >&2; exit 1; }
	@touch $@

$(VENV)/.installed: $(VENV)/.python pyproject.toml
	@mkdir -p build
	@echo "funcgrad: installing what the build needs"
	@tools="cffi"; command -v cmake > /dev/null || tools="$$tools cmake ninja"; \
		$(PIP) $$tools > $(LOG) 2>&1 || $(call NO_NETWORK,$$tools)
	@$(PY) build_ffi.py
	@echo "funcgrad: installing funcgrad and what the demo and the tests need"
	@$(PIP) -e '.[demo,test]' >> $(LOG) 2>&1 || $(call NO_NETWORK,the packages of pyproject.toml)
	@touch $@

demo: venv
	$(PY) -m funcgrad.demo

test: venv
	$(PY) -m pytest

lint: venv
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

format: venv
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

$(VENV)/.peers: $(VENV)/.installed
	@echo "funcgrad: installing JAX and the other libraries to compare with"
	@$(PIP) -e '.[peers]' >> $(LOG) 2>&1 || $(call NO_NETWORK,JAX)
	@touch $@

test-peers: venv $(VENV)/.peers
	$(PY) -m pytest tests/peers

$(VENV)/.docs: $(VENV)/.installed
	@echo "funcgrad: installing what the documentation needs"
	@$(PIP) -e '.[docs]' >> $(LOG) 2>&1 || $(call NO_NETWORK,what the documentation needs)
	@touch $@

# The site, build/docs/index.html; a warning is an error.  Notebooks are shown as they were committed, not run.
docs: venv $(VENV)/.docs
	$(PY) -m sphinx -q -W --keep-going -j auto -b html -d build/doctrees docs build/docs

$(VENV)/.notebooks: $(VENV)/.installed
	@echo "funcgrad: installing what runs notebooks"
	@$(PIP) -e '.[notebooks]' >> $(LOG) 2>&1 || $(call NO_NETWORK,what runs notebooks)
	@touch $@

# Every notebook in a clean kernel; NOTEBOOKS="02 05" chooses, and WRITE=--write keeps the outputs in the files.
notebooks: venv $(VENV)/.notebooks
	$(PY) -m pytest -q tests/test_notebook_harness.py
	$(PY) notebooks/run.py $(NOTEBOOKS) $(WRITE)

# PyTorch is large: make peers-torch installs it for the benchmarks, which leave it out where it is missing.
peers-torch: venv
	@echo "funcgrad: installing PyTorch"
	@$(PIP) -e '.[peers-torch]' >> $(LOG) 2>&1 || $(call NO_NETWORK,PyTorch)

bench: venv $(VENV)/.peers
	$(PY) -m benchmarks

bench-quick: venv $(VENV)/.peers
	$(PY) -m benchmarks --quick

# ggml's own tests: is a backend wrong, or our use of it?  make test-ggml OPS="MUL_MAT SOFT_MAX" chooses operations.
test-ggml: venv
	$(PY) build_ffi.py test-ggml $(OPS)

# Every test of a Vulkan device, then those of any device with it as the default one; without a GPU on Mesa's software driver (apt install mesa-vulkan-drivers).
test-vulkan: venv
	FUNCGRAD_VULKAN_SOFTWARE=1 $(PY) -m pytest tests/test_primitives.py tests/test_vulkan*.py tests/test_spirv*.py -k "vulkan or spirv"
	FUNCGRAD_VULKAN_SOFTWARE=1 FUNCGRAD_TEST_DEVICES=vulkan:0 $(PY) -m pytest tests --ignore=tests/peers --ignore=tests/test_primitives.py -k "vulkan:0"

wheel: venv
	@$(PIP) build >> $(LOG) 2>&1 || $(call NO_NETWORK,build)
	$(PY) -m build

# Leaves the cache outside the checkout (build_ffi.py says where).
clean:
	rm -rf $(VENV) build dist docs/notebooks ggml_src/unpacked ggml_src/archive .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -f funcgrad/runtime/*.so funcgrad/runtime/*.dylib funcgrad/runtime/.built
	find funcgrad tests -name __pycache__ -type d -prune -exec rm -rf {} +
