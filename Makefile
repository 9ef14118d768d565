# One command for each thing. `make help` lists them.

PYTHON ?= python3
BIN := .venv/bin
# Set, every process compiles all modules again, and tests start hundreds of processes.
unexport PYTHONDONTWRITEBYTECODE
PYTEST := $(BIN)/pytest
# More than two cores can use, for much of a test is waiting for servers. Not in pyproject.toml: a single test by hand need not pay for it.
WORKERS := -n 3 --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-stop test test-unit test-nightly lint format schema bench package audit clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## .venv with the ticdc-replay command, and the Kafka jars; fast when nothing changed
	@$(PYTHON) scripts/setup

demo: setup ## the embedded stack, the sample changefeed and a backfill; EXIT=1 ends by itself, PATIENCE=3 waits longer
	@$(BIN)/python -m demo $(if $(EXIT),--exit) $(if $(PATIENCE),--patience $(PATIENCE))

demo-stop: ## stop a demo that runs elsewhere
	@$(BIN)/python -m demo.stop

test: setup ## all tests, with real servers
	@$(PYTEST) $(WORKERS) $(ARGS)

test-unit: setup ## the fast ones
	@$(PYTEST) tests/unit -m 'not slow' $(WORKERS) $(ARGS)

test-nightly: setup ## all tests, with ten times as many examples of each property
	@HYPOTHESIS_PROFILE=nightly $(PYTEST) $(WORKERS) --timeout 3600 $(ARGS)

lint: setup ## format, lint and types, as CI asks
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@if command -v cargo >/dev/null && command -v cc >/dev/null; then cd native && cargo fmt --check && \
		CARGO_TARGET_DIR=../.cache/native cargo clippy --quiet --locked --release -- --deny warnings; fi
	@$(BIN)/python -m ticdc_replay.config.json_schema include/pipelines/pipeline.schema.json include/stores/store.schema.json --check

format: setup ## make `lint` content where a machine can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

schema: setup ## the JSON Schemas of pipeline and store files, from the types that read them
	@$(BIN)/python -m ticdc_replay.config.json_schema include/pipelines/pipeline.schema.json include/stores/store.schema.json

bench: setup ## measure; results go to benchmarks/RESULTS.md
	@$(BIN)/python -m benchmarks $(ARGS)

package: setup ## wheels, and the archive that Spark executors run from, in dist/; ARGS="--platform …" for another platform
	@$(BIN)/python scripts/package-executors $(ARGS)

audit: setup ## known vulnerabilities and licences of all that is locked; ARGS=--allow-unasked where advisories can't be reached
	@$(BIN)/python scripts/audit $(ARGS)

clean: ## remove the environment, the cache and all that tools left
	@rm -rf .venv .cache .demo .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
	@rm -rf include/ticdc_replay.egg-info
