# `make demo` and `make test` start from a bare machine with Python >= 3.11. Written for GNU make 3.81 (macOS) and newer.
PYTHON ?= python3
VENV ?= .venv
TESTS ?= 2
BIN = $(VENV)/bin
# pip's note that a newer pip exists is no news here.
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: help install demo test lint docs results data-given bench clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s  %s\n", $$1, $$2 }' Makefile
	@echo "  settings: PYTHON=$(PYTHON) (3.11 or newer), VENV=$(VENV) (the virtual environment)"

install: $(VENV)/.package-installed ## make the virtual environment from requirements.txt, with this checkout in it

demo: install ## train plainly and by corroborate on generated scenes with 60 % mismatched captions
	$(BIN)/in2r demo

test: install ## run the tests, two files at a time (TESTS=number)
	$(BIN)/python -m pytest -n $(TESTS) --dist loadfile

lint: install ## check style, types, import directions and spelling
	@status=0; for check in "ruff check ." "ruff format --check ." mypy lint-imports codespell; do \
	  echo "$$check"; $(BIN)/$$check || status=1; done; exit $$status

docs: install $(VENV)/.docs-installed ## build the documentation site in build/docs; a warning is an error
	$(BIN)/python -m sphinx -q -W --keep-going -n docs build/docs
	@echo "build/docs/index.html"

results: data-given install ## train the missing cells of docs/results*.md (web-like sets: benchmarks/weblike.yaml) and write the pages; resumes; DATA=folder that holds flickr8k_precomp
	$(BIN)/in2r bench run benchmarks/flickr8k.yaml --data $(DATA) --out benchmarks/results/flickr8k --jobs 2
	$(BIN)/in2r bench run benchmarks/recipe.yaml --data $(DATA) --out benchmarks/results/recipe --jobs 2
	$(BIN)/python benchmarks/report.py

data-given:
	@test -n "$(DATA)" || { echo "name the folder of the data: make results DATA=folder (docs/results.md says what it holds)" >&2; exit 1; }

bench: install ## time a step, an epoch, validation, ranks and retrieval against a plain version of the same
	$(BIN)/python benchmarks/run.py

clean: ## remove caches, build output and .venv; runs and results stay
	rm -rf .venv build dist src/in2r.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# Two stamps: only a changed requirements.txt costs a new resolution, a changed pyproject.toml renews the entry points.
$(VENV)/.requirements-installed: requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is absent or older than Python 3.11; name another: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -r requirements.txt
	@touch $@

$(VENV)/.docs-installed: docs/requirements.txt $(VENV)/.requirements-installed
	$(BIN)/python -m pip install -c requirements.txt -r docs/requirements.txt
	@touch $@

# setuptools is among the pins, so nothing is fetched for the build.
$(VENV)/.package-installed: $(VENV)/.requirements-installed pyproject.toml
	$(BIN)/python -m pip install --no-deps --no-build-isolation -e .
	@touch $@
