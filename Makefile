# What people and CI run. Everything lives in .venv; nothing else on the machine is touched.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Without bytecode an installation takes half of the time; Python writes that of the modules which it imports.
INSTALL := $(PIP) install --no-compile
KERNELS := $(wildcard distrain/*/_*.[ch]) $(wildcard distrain/*/*/_*.[ch] distrain/*/*/*/_*.[ch])
JOBS ?= 2
LOWEST := tests/loader/partition tests/loader tests/train/step tests/train/loop tests/prep
# pytest-timeout ends a test that waits in Python. If a test hangs elsewhere, its process ends after
# a quarter of an hour and prints its threads' stacks; the other tests continue in a new process.
# Run test files in directory order; xdist's own order would start the longest file last.
SHARED = --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder --max-worker-restart 2 --durations 10 \
	-o faulthandler_timeout=900 -o faulthandler_exit_on_timeout=true
# Without cached bytecode each rank and command would compile the package again, and pytest all tests.
unexport PYTHONDONTWRITEBYTECODE
FASTAI := fastai fastcore fastdownload fastprogress fasttransform plum-dispatch beartype pandas

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow test-release test-lowest check check-types check-others format kernels docs release bench mutants gpu clean

help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.runtime ## Generate, prepare and train on generated data (under 4 minutes on 2 cores)
	$(BIN)/distrain demo --overwrite

# Two processes share the test files: many tests only wait for processes and files.
# COVERAGE=1 measures which lines of the package the test process itself runs (ranks and other
# processes are not included), prints them by file, and takes more than twice as long.
test: $(VENV)/.dev $(VENV)/.helm ## Run the test suite
	$(BIN)/python $(if $(COVERAGE),-m coverage run -m pytest,-m pytest $(SHARED)) -m "not slow and not release" $(ARGS)
	$(if $(COVERAGE),$(BIN)/python -m coverage report)

test-slow: $(VENV)/.dev $(VENV)/.helm ## Run the slow tests
	$(BIN)/python -m pytest $(SHARED) -m "slow and not release" $(ARGS)

test-release: $(VENV)/.dev $(VENV)/.fastai $(VENV)/.helm $(VENV)/.helm-old ## Run the tests that only a release needs: more models, causes, databases, kills (hours)
	$(BIN)/python -m pytest $(SHARED) -m release $(ARGS)

test-lowest: $(VENV)/.lowest ## Run tests of loader, training and ETL with the lowest allowed versions
	$(VENV)/lowest/bin/python -m pytest $(SHARED) -m "not slow and not release" $(LOWEST) $(ARGS)

# `make -j2 check` checks types, which takes half of the time, beside everything else.
check: check-types check-others ## Format, lint, types, import contracts, prose, docs

check-types: $(VENV)/.dev
	$(BIN)/mypy

check-others: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-logo
	$(BIN)/python tools/prose.py
	$(BIN)/python docs/_ext/architecture_map.py
	$(BIN)/python docs/_ext/references.py
	$(BIN)/python -m sphinx --fail-on-warning --quiet -b html docs docs/_build/html

format: $(VENV)/.dev ## Format, apply automatic fixes, and write the generated parts of pages
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/python docs/_ext/architecture_map.py --write
	$(BIN)/python docs/_ext/references.py --write

# Touches the marker files, or the next target would install the whole package again.
kernels: $(if $(wildcard $(VENV)/.dev),,$(VENV)/.dev) ## Build the C kernels in place, after an edit of one
	$(BIN)/python setup.py --quiet build_ext --inplace
	if [ $(VENV)/.dev -nt pyproject.toml ] && [ $(VENV)/.dev -nt constraints.txt ]; then \
		touch $(VENV)/.dev $(VENV)/.runtime; fi

docs: $(VENV)/.dev ## Build the documentation into docs/_build/html
	$(BIN)/python -m sphinx --fail-on-warning -b html docs docs/_build/html
	@echo "To read and search it: $(BIN)/python -m http.server -d docs/_build/html 8000"

release: $(VENV)/.dev $(VENV)/.release ## Make the files of a release from the last commit, in dist/release
	PATH=$(CURDIR)/$(VENV)/release/bin:$$PATH PYTHONPATH=$(CURDIR)/$(VENV)/release \
		$(BIN)/python deploy/release/make_release.py dist/release

bench: $(VENV)/.dev ## Run the benchmarks, quick form
	for script in $(filter-out benchmarks/gpu.py,$(wildcard benchmarks/*.py)); do $(BIN)/python $$script --quick || exit 1; done

# PACKAGE is a folder of distrain, or a path prefix such as train/loop.
mutants: $(VENV)/.dev ## Show which small wrong edits of a package its tests miss: PACKAGE=loader [MUTANTS=40 SEED=1]
	$(BIN)/python tools/mutants/run.py --only distrain/$(PACKAGE) --mutants $(or $(MUTANTS),40) --seed $(or $(SEED),1) --per-test $(ARGS)

gpu: $(VENV)/.dev ## Test on a GPU everything that supports one; the report goes into gpu-report
	$(BIN)/python benchmarks/gpu.py --out gpu-report $(ARGS)

clean: ## Remove the environment and all generated files
	rm -rf $(VENV) docs/_build dist demo .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: $(VENV)/bin/python pyproject.toml constraints.txt $(KERNELS)
	$(INSTALL) --constraint constraints.txt --editable .
	touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml constraints.txt $(KERNELS)
	$(INSTALL) --constraint constraints.txt --editable '.[dev,docs]'
	touch $@ $(VENV)/.runtime

# A separate environment.
$(VENV)/.lowest: $(VENV)/bin/python pyproject.toml constraints-lowest.txt $(KERNELS)
	$(PYTHON) -m venv $(VENV)/lowest
	$(VENV)/lowest/bin/python -m pip --quiet install --constraint constraints-lowest.txt --editable . \
		hypothesis pytest pytest-timeout pytest-xdist scikit-learn setuptools
	touch $@

# Its tools are in a separate folder, since the SBOM lists the environment's packages.
$(VENV)/.release: $(VENV)/bin/python deploy/images/constraints-build.txt deploy/release/requirements.txt
	rm -rf $(VENV)/release
	$(INSTALL) --target $(VENV)/release --requirement deploy/images/constraints-build.txt \
		--requirement deploy/release/requirements.txt
	touch $@

# fastai depends on torchvision, whose wheels may install another torch, but its tabular part needs
# neither it nor spaCy: so it gets a separate folder, and only the dependencies listed here. Only the
# tests of fastai use it; they skip if it cannot be installed.
$(VENV)/.fastai: $(VENV)/bin/python constraints.txt
	rm -rf $(VENV)/fastai
	$(INSTALL) --target $(VENV)/fastai --no-deps --constraint constraints.txt $(FASTAI) \
	&& touch $@ || echo "fastai could not be installed; its tests will be skipped"

# Helm and Kubernetes schemas for the tests of the chart, which skip without them: 60 MB, and 35 MB
# for the older helm.
$(VENV)/.helm: $(VENV)/bin/python tests/support/helm_tools.py
	$(BIN)/python tests/support/helm_tools.py $(VENV)/helm \
	&& touch $@ || echo "helm could not be fetched; tests of the chart will be skipped"

$(VENV)/.helm-old: $(VENV)/bin/python tests/support/helm_tools.py
	$(BIN)/python tests/support/helm_tools.py $(VENV)/helm --old \
	&& touch $@ || echo "helm 3 could not be fetched; its tests will be skipped"
