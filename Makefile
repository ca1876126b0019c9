# setup is a part of each target, so every one of these works on a fresh Debian 12
# or Ubuntu 24.04 (as root, since packages are installed and containers are run).
VENV ?= .venv
PY = $(VENV)/bin/python
# Workers for the suite. Tests with the same xdist_group (all that need dockerd) share one.
JOBS ?= 2
PYTEST_ARGS ?=

.PHONY: setup test check demo bench matrix clean

setup:
	@bash packaging/dev-setup.sh $(VENV)

test: setup
	$(PY) -m pytest -n $(JOBS) --dist loadgroup -q $(PYTEST_ARGS)

check: setup
	$(PY) -m pytest -q tests/test_linters.py tests/test_layers.py

demo: setup
	@$(PY) -m tests.demo

# All engines, control group systems and ways of asking; the table goes into docs/.
matrix: setup
	$(PY) -m pytest -n $(JOBS) --dist loadgroup -q tests/matrix --matrix --matrix-table=docs $(PYTEST_ARGS)

bench: setup
	@$(PY) -m tests.bench

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -rf "$${XDG_CACHE_HOME:-/var/tmp}/gpushim-test-images"
