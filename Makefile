# One command for each thing. `make help` lists them.

PYTHON ?= python3
BIN := .venv/bin
# If it is set, each process compiles all modules again, and tests start hundreds of processes.
unexport PYTHONDONTWRITEBYTECODE
PYTEST := $(BIN)/pytest
# Three workers on two cores, because tests mostly wait for servers. Not in pyproject.toml: a single test runs faster without.
WORKERS := -n 3 --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-stop test test-unit test-nightly test-matrix lint format schema emulators tidb bench package audit clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## make .venv with the ticdc-replay command, and fetch the jars of Kafka and lake tables
	@$(PYTHON) scripts/setup

demo: setup ## run the whole system with a sample changefeed; RUNNER=connect: at a Spark Connect server; EXIT=1 stops it at the end
	@$(BIN)/python -m demo $(if $(RUNNER),--runner $(RUNNER)) $(if $(EXIT),--exit) $(if $(PATIENCE),--patience $(PATIENCE))

demo-stop: ## stop a demo that runs in another terminal
	@$(BIN)/python -m demo.stop

test: setup ## run all tests, with real servers
	@$(PYTEST) $(WORKERS) $(ARGS)

test-unit: setup ## run the fast tests, without servers
	@$(PYTEST) tests/unit -m 'not slow and not integration' $(WORKERS) $(ARGS)

test-nightly: emulators ## run all tests, with many times the examples of each property
	@TICDC_REPLAY_REQUIRE_EMULATORS=1 HYPOTHESIS_PROFILE=nightly $(PYTEST) $(WORKERS) --timeout 3600 $(ARGS)

test-matrix: setup ## run a few tests with each supported Spark, Airflow and Python; ARGS=spark-3.5-py3.11 for one
	@$(BIN)/python scripts/test-matrix $(ARGS)

lint: setup ## check format, lint and types, as CI does
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@if command -v cargo >/dev/null && command -v cc >/dev/null; then cd native && cargo fmt --check && \
		CARGO_TARGET_DIR=../.cache/native cargo clippy --quiet --locked --release -- --deny warnings; fi
	@$(BIN)/python -m ticdc_replay.config.json_schema include/pipelines/pipeline.schema.json include/stores/store.schema.json --check

format: setup ## fix format and lint where possible
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

schema: setup ## write the JSON Schemas of pipeline and store files
	@$(BIN)/python -m ticdc_replay.config.json_schema include/pipelines/pipeline.schema.json include/stores/store.schema.json

tidb: setup ## build a TiDB server for the nightly tests: 10 to 20 minutes, with Go; they are skipped without it
	@$(BIN)/python -m tests.support.tidb

emulators: setup ## fetch emulators of Google's and Azure's storage; tests of these stores are skipped without them
	@$(BIN)/python -m demo.embedded_stack.emulators

bench: setup ## measure, and write benchmarks/RESULTS.md
	@$(BIN)/python -m benchmarks $(ARGS)

package: setup ## build wheels and the archive for Spark executors in dist/; ARGS="--platform …" for another platform
	@$(BIN)/python scripts/package-executors $(ARGS)

audit: setup ## check locked packages for vulnerabilities and licences; ARGS=--allow-unasked if advisories can't be reached
	@$(BIN)/python scripts/audit $(ARGS)

clean: ## remove the environment, caches and build files
	@rm -rf .venv .cache .demo .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
	@rm -rf include/ticdc_replay.egg-info
