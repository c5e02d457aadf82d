# `make demo` and `make test` are complete: each brings all it needs, into .venv, Spark's jar cache and ~/.cache.

SHELL := /bin/sh
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
EXTRAS := daemon,reaper,spark,azure,s3,gcs,kafka,http,dev
PYTHONS := $(PYTHON) python3.11 python3.12 python3.13 python3.14 python3

.DEFAULT_GOAL := help
.PHONY: help demo prepare test test-changed bench chaos simulate soak model conform rules image page check lint types floors dockerfile fmt spark clean distclean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: spark ## the whole queue for a minute; DEMO_SECONDS=60 WRITERS=5 CHAOS=1
	@$(BIN)/python -m demo

# Half of it is waiting, so three processes share what is no choice of a few tests; one that hangs ends the run.
THREE := -n 3 --max-worker-restart 0

prepare: $(INSTALLED) ## fetch and build what tests need; does nothing when all is there; ARGS=versitygw for one
	@$(BIN)/python -m tests.prepare $(ARGS)

# What could not be prepared said so: the other tests are still worth running.
PREPARED := $(BIN)/python -m tests.prepare || echo "Some tests cannot run: they are skipped, or fail with CI=true." >&2

test: $(INSTALLED) ## every test; ARGS="-m 'not spark'" leaves out those that need a JVM, ARGS="-k name" chooses
	@$(PREPARED)
	@$(BIN)/python -m pytest $(if $(filter-out -m,$(firstword $(ARGS))),,$(THREE)) $(ARGS)

test-changed: $(INSTALLED) ## the tests of what is other than in a commit: of a guest and who names it, or all; BASE=main
	@$(PREPARED)
	@folders=$$($(BIN)/python -m tests.changed $(BASE)) && $(BIN)/python -m pytest $(THREE) $$folders

bench: $(INSTALLED) ## what it costs, beside its peers; PEER_JAVA=script, ONLY=drain,curve, BIG=1
	@$(PREPARED)
	@$(BIN)/python -m benchmarks $(if $(PEER_JAVA),--peer $(PEER_JAVA)) $(if $(ONLY),--only $(ONLY)) $(if $(BIG),--big)

chaos: $(INSTALLED) ## every fault there is, and rows missing and double by fault; ARGS="--short", ARGS="--seed 7 --minutes 10"
	@$(PREPARED)
	@$(BIN)/python -m tests.chaos $(ARGS)

simulate: $(INSTALLED) ## the real programs on a simulated clock, storage and catalog, by seed; SEED=7 STEPS=100000, ARGS="--seconds 120"
	@$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED)) $(if $(STEPS),--steps $(STEPS)) $(ARGS)

soak: spark ## two hours of real processes with everything on, killed now and then; ARGS="--minutes 3", ARGS="--folder DIR --seed 7"
	@$(BIN)/python -m tests.soak $(ARGS)

model: ## check every interleaving of the protocol's model, and that each rule is needed; needs Cargo; ARGS=expiry for one
	@cd tests/model && CARGO_TARGET_DIR=$(HOME)/.cache/iceberg-bookkeeper/model cargo run --quiet --release -- $(ARGS)

conform: $(INSTALLED) ## record 200 runs of the real programs, and check that the model takes each; needs Cargo; ARGS=1000 for more
	@$(BIN)/python -m tests.prepare model
	@$(BIN)/python -m tests.model.conformance $(ARGS)

rules: $(INSTALLED) ## break each rule of the protocol on purpose, and see who turns red; ARGS=--part, ARGS=any_position, ARGS=--list
	@$(PREPARED)
	@$(BIN)/python -m tests.rules $(ARGS)

image: $(INSTALLED) ## build the image, run a writer and a bookkeeper from it; SPARK=1; as root
	@$(BIN)/python -m tests.prepare containers azurite || true
	@IMAGE_TEST=1 SPARK=$(SPARK) $(BIN)/python -m pytest -o faulthandler_timeout=1800 tests/deploy/test_image.py tests/deploy/test_compose_runs.py $(ARGS)

page: $(INSTALLED) ## draw the daemon's page anew for the docs; needs Chromium
	@$(BIN)/python -m tests.prepare chromium
	@$(BIN)/python -m tests.observe.http.show docs/page.png docs/page-phone.png

check: lint types floors dockerfile ## what needs no test: style, types, imports, Dockerfile

lint: $(INSTALLED)
	@$(BIN)/ruff check --output-format concise
	@$(BIN)/ruff format --check

types: $(INSTALLED)
	@$(BIN)/mypy

floors: $(INSTALLED)
	@$(BIN)/lint-imports --no-logo

dockerfile: $(INSTALLED)
	@$(BIN)/hadolint Dockerfile

fmt: $(INSTALLED) ## let ruff put the code into shape
	@$(BIN)/ruff check --fix-only --quiet
	@$(BIN)/ruff format

spark: $(INSTALLED) ## a Java and Spark's jars; does nothing when they are there
	@$(BIN)/python -m spark_jobs.prepare >/dev/null

# Version managers put shims on PATH that fail when run, so each candidate is run. The stamp comes last:
# an install that was cut off is done again.
$(INSTALLED): setup.cfg pyproject.toml constraints.txt
	@$(BIN)/python -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  able= ; bare= ; \
	  for python in $(PYTHONS); do \
	    "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	    if "$$python" -c 'import ensurepip, venv' 2>/dev/null; then able=$$python; break; fi; \
	    bare=$$python; \
	  done; \
	  if [ -n "$$able" ]; then "$$able" -m venv --clear $(VENV); \
	  elif [ -n "$$bare" ]; then \
	    echo "$$bare cannot make a virtualenv (it has no ensurepip): on Debian or Ubuntu, apt install python3-venv." >&2; false; \
	  else \
	    echo "No Python 3.11 or newer found: install one, or name it: make PYTHON=/path/to/python3 ..." >&2; false; \
	  fi; \
	}
	@echo "Installing into $(VENV); the first time takes a minute or two." >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  --constraint constraints.txt --editable '.[$(EXTRAS)]'
	@touch $@

clean: ## remove what runs and builds left behind; keeps .venv
	@rm -rf .demo .bench build dist *.egg-info metastore_db spark-warehouse artifacts derby.log
	@rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean ## clean, and .venv
	@rm -rf $(VENV)
