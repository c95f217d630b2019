# Everything runs in a virtual environment of the project's own; only Python (>= 3.11) is needed.
# Java (>= 17) is the machine's or, where it has none, a Python package.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TRANSACTIONS ?= 100000
SEEDS ?= 100
WORKERS ?= 4
NEEDS_JAVA = @$(BIN)/waltz local java
WITH_DEEP_TESTS = $(shell grep -rlw --include='test_*.py' 'deep' tests)
PYTEST = $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadscope
SMOKE_TRANSACTIONS ?= 1000000
SMOKE_RATE ?= 2000
OPERATIONS ?= 20000
SEED ?= 1
FUZZ_SECONDS ?= 60
RESULTS ?= bench.json
CURVES := log-length idle-partitions idle-clients readers

# Tests start hundreds of processes, of which each would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help install demo demo-archive test test-deep test-all test-budget unit coverage lint format types \
	bench bench-full bench-curves bench-page bench-storage bench-client bench-table bench-spark bench-availability bench-access bench-take-over bench-peers simulate simulate-mutants models smoke histories docs twins package wheel fuzz lock clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 28

# Each purpose has a lock file in requirements/, and installs only that. Where everything is installed, nothing is missing.
define install_from
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Waltz needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V). Try: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "installing into $(VENV) what $(2) needs (once) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r $(1)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@
endef

installed_for = $(if $(wildcard $(STAMP)),$(STAMP),$(STAMP)-for-$(1))

$(STAMP): requirements/all.lock pyproject.toml
	$(call install_from,requirements/all.lock,development)

$(STAMP)-for-%: requirements/%.lock pyproject.toml
	$(call install_from,requirements/$*.lock,$*)

install: $(STAMP) ## create the virtual environment

demo: $(call installed_for,demo) ## the bank on an embedded cluster, then Spark over its log
	$(NEEDS_JAVA)
	@$(BIN)/waltz demo --transactions $(TRANSACTIONS)

demo-archive: $(call installed_for,demo) ## append, archive, stop all nodes, and Spark still reads the history: make demo-archive ARCHIVE=URL
	$(NEEDS_JAVA)
	@$(BIN)/python -m waltz.demo.history --transactions $(TRANSACTIONS) $(if $(ARCHIVE),--archive $(ARCHIVE))

test: $(call installed_for,test) ## the tests that every change needs, in 8 to 11 minutes on two cores
	$(NEEDS_JAVA)
	@echo "running the tests on $(WORKERS) processes; they take 8 to 11 minutes on two cores"
	@$(PYTEST) -m "not deep" --junitxml build/test.xml

test-deep: $(call installed_for,test) ## the rest: more seeds, more planted bugs, more kills of real processes, in 15 to 22 minutes
	$(NEEDS_JAVA)
	@echo "running the long tests on $(WORKERS) processes; they take 15 to 22 minutes on two cores"
	@$(PYTEST) -m deep --junitxml build/test-deep.xml $(WITH_DEEP_TESTS)

test-all: test test-deep ## all tests

test-budget: $(call installed_for,test) ## folders whose tests have become slower, by the last reports of both
	@$(BIN)/python -m tests.budget --check $(wildcard build/test.xml build/test-deep.xml)

unit: $(call installed_for,unit) ## unit tests; they need neither Java nor Spark
	@$(PYTEST) tests/unit tests/examples

coverage: $(STAMP) ## what of each module its own test file covers
	@$(BIN)/python -m tests.coverage_map

lint: $(STAMP) ## style
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: $(STAMP) ## apply the style
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

types: $(STAMP) ## strict type checking
	@$(BIN)/mypy

bench: $(STAMP) ## a cluster beside the lean pipeline, in some minutes: make bench RESULTS=FILE
	$(NEEDS_JAVA)
	@$(BIN)/python -m benchmarks.cluster quick --json $(RESULTS)

bench-full: $(STAMP) ## the same in every combination, with readers and curves, in some hours
	$(NEEDS_JAVA)
	@$(BIN)/python -m benchmarks.cluster full consumers $(CURVES) --rounds 5 --json $(RESULTS)

bench-curves: $(STAMP) ## appends over the length of the log, idle partitions, idle clients and readers
	$(NEEDS_JAVA)
	@$(BIN)/python -m benchmarks.cluster $(CURVES) --json $(RESULTS)

bench-page: $(STAMP) ## plots and tables of a run into docs/appendix/benchmark-results.md: make bench-page RESULTS=FILE
	@$(BIN)/python -m benchmarks.cluster --draw $(RESULTS)

bench-storage: $(STAMP) ## one storage node: records/s and MB/s over connections, sizes and partitions
	@$(BIN)/python -m benchmarks.storage

bench-client: $(STAMP) ## CPU per transaction of the client library
	@$(BIN)/python -m benchmarks.client

bench-table: $(STAMP) ## tables: rows/s applied, got and scanned, store by store
	@$(BIN)/python -m benchmarks.table

bench-spark: $(STAMP) ## rows/s of the log in Spark, as a batch and as a stream, beside a source that makes its rows up
	$(NEEDS_JAVA)
	@$(BIN)/python -m benchmarks.spark

bench-availability: $(STAMP) ## how long appends stall when nodes fail
	$(NEEDS_JAVA)
	@$(BIN)/python -m benchmarks.availability

bench-access: $(STAMP) ## what access rules and quotas cost an append: calls of functions, processor time
	@$(BIN)/python -m benchmarks.access

bench-take-over: $(STAMP) ## how long a server takes to take over hundreds of partitions from one that was killed
	$(NEEDS_JAVA)
	@$(BIN)/python -m benchmarks.take_over

bench-peers: $(STAMP) ## etcd, NATS JetStream, Redis streams and PostgreSQL beside Waltz: those that are installed
	$(NEEDS_JAVA)
	@$(BIN)/python -m benchmarks.peers

simulate: $(STAMP) ## a whole cluster in simulated time: make simulate SEEDS=100
	@$(BIN)/python -m tests.simulation --seeds $(SEEDS)

simulate-mutants: $(STAMP) ## plant bugs, one after the other: each has to be found within its number of seeds
	@$(BIN)/python -m tests.simulation --mutant all

models: $(STAMP) ## check the TLA+ specifications in docs/models at their large sizes
	$(NEEDS_JAVA)
	@$(BIN)/python -m tests.models

smoke: $(STAMP) ## nodes killed, paused and cut off at random under load, then everything compared
	$(NEEDS_JAVA)
	@$(BIN)/python -m tests.smoke --transactions $(SMOKE_TRANSACTIONS) --rate $(SMOKE_RATE)

histories: $(STAMP) ## histories of real processes under faults, judged by independent checkers: make histories OPERATIONS=20000 SEED=1
	$(NEEDS_JAVA)
	@$(BIN)/python -m tests.histories --operations $(OPERATIONS) --seed $(SEED)

docs: $(STAMP) ## the documentation and the API reference as a site, into build/site; every link is checked
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

twins: $(STAMP) ## the modules for threads that are made of asynchronous ones
	@$(BIN)/python -m tests.twins

package: $(STAMP) ## wheel, source distribution and image's steps, installed where nothing else is, and used there
	$(NEEDS_JAVA)
	@$(BIN)/python -m tests.package

wheel: $(STAMP) ## build the wheel and the source distribution into dist/
	@$(BIN)/python -m hatchling build

fuzz: $(STAMP) ## every decoder under a coverage-guided fuzzer: make fuzz FUZZ_SECONDS=60 (for each)
	@$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS)

UV_COMPILE := $(BIN)/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 \
	--custom-compile-command 'make lock' pyproject.toml

lock: $(STAMP) ## renew the lock files from pyproject.toml
	@$(BIN)/python -m pip install --quiet uv
	@$(UV_COMPILE) --all-extras --group dev --group deploy --group browser --group s3 --group docs --group fuzz -o requirements/all.lock
	@$(UV_COMPILE) --all-extras --group dev --group deploy --group browser --group s3 --constraints requirements/all.lock -o requirements/test.lock
	@$(UV_COMPILE) --extra acl --extra archive --extra table --extra view --extra tools --extra prometheus --extra opentelemetry --group dev --constraints requirements/all.lock -o requirements/unit.lock
	@$(UV_COMPILE) --extra demo --group build --constraints requirements/all.lock -o requirements/demo.lock
	@$(UV_COMPILE) --extra acl --extra archive --extra parquet --extra view --group build --constraints requirements/all.lock -o requirements/node.lock

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache
