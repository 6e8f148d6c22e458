# One command each; a second run of any of them is quick. `make` alone lists them.

# How long Lance and DataFusion take to compile from nothing, on two cores.
FIRST_BUILD_MINUTES := 40

PYTHON ?= python3

# Outside the clone and shared by every checkout of this machine, because of those minutes.
CARGO_TARGET_DIR ?= $(HOME)/.cache/lancemem/target
export CARGO_TARGET_DIR

VENV := $(CURDIR)/.venv
export VIRTUAL_ENV := $(VENV)
unexport CONDA_PREFIX
unexport PYTHONHOME
unexport PYTHONPATH

ifndef LANCEMEM_STARTED
export LANCEMEM_STARTED := $(shell date +%s)
endif

# Whether this machine had compiled Lance when make started. The makes below inherit the answer.
ifndef WAS_WARM
export WAS_WARM := $(if $(wildcard $(CARGO_TARGET_DIR)/release/deps/liblance-*.rlib),yes,no)
endif
IS_WARM := $(filter yes,$(WAS_WARM))

STAGE := scripts/stage.sh
SUBMAKE := $(MAKE) --no-print-directory
BIN := .venv/bin
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --no-input --progress-bar off
NEXTEST := $(BIN)/cargo-nextest nextest run --cargo-profile release

# Folders that hold Python, and only those: mypy stops at a folder without any.
PYTHON_DIRS := $(foreach dir,python demo examples tests benches scripts,$(if $(shell find $(dir) -name '*.py' 2>/dev/null | head -1),$(dir)))
RUST_SOURCES := $(shell find rust -name '*.rs' -o -name Cargo.toml 2>/dev/null)

# Maturin sets these for its own build. Clippy gets the same, or each would make the other compile PyO3 again.
PYO3_ENV = PYO3_BUILD_EXTENSION_MODULE=1 PYO3_PYTHON=$(VENV)/bin/python \
	PYO3_ENVIRONMENT_SIGNATURE=$$($(BIN)/python -c 'import sys; print("cpython-%d.%d-%dbit" % (*sys.version_info[:2], 64 if sys.maxsize > 2**32 else 32))') \
	PYTHON_SYS_EXECUTABLE=$(VENV)/bin/python

SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help setup build wheel docs fmt fmt-check tidy deny lint lint-text lint-python lint-rust \
	test test-core test-sim test-rust test-py test-spark smoke-oldest-spark sim schedules soak \
	kills spark-kills cuts takeovers chaos fuzz mutants table-mutants demo demo-search bench bench-write \
	bench-compact bench-changes bench-merge bench-read bench-search bench-roaring bench-spark bench-all bench-build ci clean

help: ## list the commands
	@grep -hE '^[a-z-]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | expand -t 14

# --- set up and build ------------------------------------------------------

TOOLS := .venv/.tools-installed
MODULE := .venv/.module-installed

setup: $(MODULE) ## make .venv, install the tools, build and install lancemem

build: ## build and install the module now, whatever make thinks
	@rm -f $(MODULE)
	@$(SUBMAKE) $(MODULE)

wheel: $(TOOLS) ## a wheel in dist/, stripped, then installed and used in an empty environment
	@$(SUBMAKE) say-how-long
	@$(STAGE) "wheel in dist" scripts/build_module.sh --wheel dist
	@$(STAGE) "wheel in an empty environment" $(BIN)/python scripts/check_wheel.py dist

$(TOOLS): requirements/dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "lancemem needs Python 3.11 or newer; name one: make PYTHON=python3.11")'
	@command -v cargo >/dev/null || { echo "lancemem needs cargo (Rust 1.94 or newer) on the PATH"; exit 1; }
	@$(STAGE) "Python environment in .venv" $(PYTHON) -m venv .venv
	@$(STAGE) "tools from requirements/dev.txt (one to three minutes)" \
		$(PIP_INSTALL) -r requirements/dev.txt
	@touch $@

$(MODULE): $(TOOLS) $(RUST_SOURCES) Cargo.toml Cargo.lock pyproject.toml
	@$(SUBMAKE) say-how-long
	@$(STAGE) "module lancemem._lancemem" scripts/build_module.sh
	@touch $@

.PHONY: say-how-long
say-how-long:
	@ls $(CARGO_TARGET_DIR)/release/deps/liblance-*.rlib >/dev/null 2>&1 || { \
		echo "First build on this machine: Lance and DataFusion are compiled from source,"; \
		echo "about $(FIRST_BUILD_MINUTES) minutes on two cores. What is compiled is kept in"; \
		echo "$(CARGO_TARGET_DIR) and shared by all checkouts; an interrupted build goes on where it was."; }

# --- format and lint -------------------------------------------------------

fmt: $(TOOLS) ## format Rust and Python
	cargo fmt --all
	$(BIN)/ruff check --fix-only --exit-zero --quiet $(PYTHON_DIRS)
	$(BIN)/ruff format $(PYTHON_DIRS)

fmt-check: $(TOOLS) ## say what `make fmt` would change
	cargo fmt --all --check
	$(BIN)/ruff format --check $(PYTHON_DIRS)

lint: lint-text lint-python lint-rust ## everything that reads the code without running it

lint-text: fmt-check
	$(BIN)/ruff check $(PYTHON_DIRS)
	$(BIN)/typos

# They need no crate, so that nobody waits for one to learn of a missing header.
TIDY := tidy promises

tidy: ## headers, file sizes, layers, words, and that every promise has its test
	@mkdir -p $(CARGO_TARGET_DIR)
	@export CARGO_MANIFEST_DIR=$(CURDIR)/rust/testkit; for name in $(TIDY); do \
		rustc --edition 2024 --test -o $(CARGO_TARGET_DIR)/$$name rust/testkit/tests/$$name.rs \
			&& $(CARGO_TARGET_DIR)/$$name --quiet || exit 1; \
	done

# All lock files. Advisories are not asked for: they are in no package registry.
deny: $(TOOLS) ## licences and sources of everything that is compiled
	$(BIN)/cargo-deny --locked check licenses bans sources
	@for folder in sim fuzz; do \
		$(BIN)/cargo-deny --locked --workspace --manifest-path rust/$$folder/Cargo.toml --config deny.toml \
			check licenses bans sources || exit 1; \
	done

lint-python: $(MODULE)
	$(BIN)/mypy $(PYTHON_DIRS)
	MYPYPATH=python $(BIN)/stubtest --mypy-config-file pyproject.toml lancemem._lancemem
	$(BIN)/lint-imports

lint-rust: $(TOOLS)
	$(PYO3_ENV) cargo clippy --release --workspace --all-targets -- -D warnings
	@# The schedules compile sources of the core, of which they expect other lints than these.
	$(SIM) clippy $(SIM_ALL) --lib --bins --tests -- -D warnings -A unfulfilled-lint-expectations

# --- test ------------------------------------------------------------------

test-core: $(TOOLS) ## the engine without Lance: less than a minute
	$(NEXTEST) -p lancemem-core -p lancemem-testkit

# --- simulate --------------------------------------------------------------

# Compiled in a folder of its own, because its flags are its own (rust/sim/.cargo/config.toml), and always all
# of it: for other packages or targets cargo resolves other features, and compiles most of it again.
SIM_TARGET := $(CARGO_TARGET_DIR)/sim
SIM = cd rust/sim && CARGO_TARGET_DIR=$(SIM_TARGET) SCHEDULES=$(SCHEDULES) cargo
SIM_ALL := --workspace --release --quiet --locked
LANCEMEM_SIM := $(SIM_TARGET)/release/lancemem-sim
SEEDS ?= 10000
HOURS ?= 1
MINUTES ?= $$(($(HOURS) * 60))

sim: ## lives of a shard from fresh seeds; SEEDS=n, or LANCEMEM_SEED=n for one again
	$(SIM) test $(SIM_ALL) --no-run
	$(LANCEMEM_SIM) seeds $(SEEDS)

# Ten thousand lives are eight minutes of two cores (docs/simulation.md), which CI's ninety minutes do not
# have. A machine that compiles Lance first has no time for libFuzzer either. No test is left out: the random
# ones run fewer rounds than `make soak`, `make kills`, `make chaos`, `make takeovers` and `make spark-kills`.
CI_SEEDS := $(if $(IS_WARM),4000,1000)
CI_FUZZ := $(if $(IS_WARM),20)
CI_ROUNDS := $(if $(IS_WARM),LANCEMEM_CHAOS_ROUNDS=4 LANCEMEM_KILLS=6 LANCEMEM_POINT_KILLS=8 \
	LANCEMEM_TAKEOVERS=100 LANCEMEM_SPARK_KILLS=6,LANCEMEM_CHAOS_ROUNDS=2 LANCEMEM_KILLS=4 \
	LANCEMEM_POINT_KILLS=6 LANCEMEM_TAKEOVERS=60 LANCEMEM_SPARK_KILLS=4)
SCHEDULES ?= 100000
CI_SCHEDULES := 30000
test-sim: SCHEDULES = $(CI_SCHEDULES)

test-sim: $(TOOLS) ## the core's stories, the model of the protocol, schedules, CI_SEEDS lives, and decoders for CI_FUZZ seconds where Lance is compiled already
	$(SIM) test $(SIM_ALL)
	@$(SUBMAKE) sim SEEDS=$(CI_SEEDS)
	@$(if $(CI_FUZZ),$(SUBMAKE) fuzz FUZZ=$(CI_FUZZ),echo "no libFuzzer on a machine that compiles Lance first: make fuzz")

schedules: ## orders of the core's threads and tasks; SCHEDULES=n of each story
	$(SIM) test $(SIM_ALL) --test schedules --test cursors

soak: $(MODULE) ## random checks for HOURS=n hours or MINUTES=n, ONLY="cuts kills" or all; the report goes to out/soak, totals to docs/soak
	$(SIM) test $(SIM_ALL) --no-run
	$(if $(filter simulation,$(or $(ONLY),simulation)),$(SIM) build --workspace --profile soak --quiet --locked --bin lancemem-sim)
	$(BIN)/python -m scripts.soak $(MINUTES) $(if $(ONLY),--only $(ONLY))

KILLS ?= 72

kills: $(MODULE) ## kill -9 of real processes: KILLS=n of each life and at each point, LANCEMEM_SEED=text for others
	LANCEMEM_KILLS=$(KILLS) LANCEMEM_POINT_KILLS=$(KILLS) \
		$(BIN)/python -m pytest tests/durability -k test_kill --timeout 7200

CUTS ?= 400

cuts: $(MODULE) ## power cuts: CUTS=n random moments of each life, beside those after each acknowledgement
	LANCEMEM_CUTS=$(CUTS) $(BIN)/python -m pytest tests/durability -k power_cut --timeout 7200

TAKEOVERS ?= 10000

takeovers: $(MODULE) ## processes that take a shard from each other: TAKEOVERS=n, on S3 a fifth; LANCEMEM_SEED=text
	LANCEMEM_TAKEOVERS=$(TAKEOVERS) $(BIN)/python -m pytest tests/takeovers -s

ROUNDS ?= 10

chaos: $(MODULE) ## histories of a whole table: ROUNDS=n rounds of 12 s, SEED=text for others; a failed one is kept in out/chaos
	$(BIN)/python -m tests.chaos --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED))

SPARK_KILLS ?= 40

spark-kills: $(MODULE) ## executors and their Python killed in mid-write, SPARK_KILLS=n times on each of two clusters
	LANCEMEM_SPARK_KILLS=$(SPARK_KILLS) $(BIN)/python -m pytest -m spark tests/spark/test_kills.py

# Seconds of each decoder, as many side by side as there are processors (scripts/fuzz.py).
FUZZ ?= 60

fuzz: $(TOOLS) ## libFuzzer on every decoder, under AddressSanitizer; FUZZ=n seconds each, KEEP=1 keeps what is new in the tree
	$(BIN)/python -m scripts.fuzz $(FUZZ) $(if $(KEEP),--keep)

mutants: ## put every known bug of the core back and show who catches it
	CARGO_TARGET_DIR=$(SIM_TARGET) scripts/mutants.sh

table-mutants: $(MODULE) ## the same for the bugs of reads and compaction
	$(BIN)/python -m scripts.table_mutants

test-rust: $(TOOLS) ## all Rust tests
	@$(SUBMAKE) say-how-long
	$(NEXTEST) --workspace
	cargo test --doc --release --workspace --quiet

test-py: $(MODULE) ## Python tests that need no Spark
	$(CI_ROUNDS) $(BIN)/python -m pytest -m "not spark"

test-spark: $(MODULE) ## Python tests on a local Spark (needs Java 17)
	@command -v java >/dev/null || [ -n "$$JAVA_HOME" ] || { echo "the Spark tests need Java 17"; exit 1; }
	$(CI_ROUNDS) $(BIN)/python -m pytest -m spark

# The oldest Spark that is supported; its folder goes before that of .venv. It leaves sockets open.
OLDEST_SPARK := 4.1.0
OLDEST_SPARK_FOLDER := .venv/pyspark-$(OLDEST_SPARK)

.venv/pyspark-%: $(TOOLS)
	@$(STAGE) "pyspark $*" $(PIP_INSTALL) --quiet --no-deps --target $@.new pyspark==$*
	@rm -rf $@ && mv $@.new $@

smoke-oldest-spark: $(MODULE) $(OLDEST_SPARK_FOLDER) ## the verbs on the oldest Spark that is supported
	export PYTHONPATH=$(CURDIR)/$(OLDEST_SPARK_FOLDER); \
		$(BIN)/python -c 'import pyspark; assert pyspark.__version__ == "$(OLDEST_SPARK)", pyspark.__version__' && \
		$(BIN)/python -m pytest -m spark -W ignore::ResourceWarning tests/test_spark_table.py

# Two commands at the same time: long parts of each have work for one processor only. The first has
# the niceness $(3): compilers take what tests leave, and tests, which have timeouts, share alike. Each
# is a group of processes of its own: where one fails, the compilers of the other end with it.
define both
@set -m; nice -n $(3) $(1) & one=$$!; $(2) & other=$$!; set +m; \
trap 'kill -- -$$one -$$other 2>/dev/null' EXIT; trap 'exit 130' INT TERM; \
wait $$other && wait $$one
endef

# What fails quickly comes first: a missing comma should not wait for Lance. Then two queues share the
# processors: one compiles and runs what needs no module, the other makes the module and runs what
# needs it. They compile in folders of their own until the module is made.
test: $(TOOLS) ## everything, as CI runs it
	@$(SUBMAKE) say-how-long
	@$(STAGE) "format, ruff, spelling" $(SUBMAKE) lint-text
	@$(STAGE) "tidy" $(SUBMAKE) tidy
	@$(STAGE) "licences and sources" $(SUBMAKE) deny
	$(call both,$(SUBMAKE) all-compiled,$(SUBMAKE) all-run,10)

.PHONY: all-compiled all-run all-spark
all-compiled:
	@$(STAGE) "simulation and model" $(SUBMAKE) test-sim
	@$(STAGE) "Rust tests" $(SUBMAKE) test-rust
	@# Clippy checks that the benches compile too: linking them takes minutes.
	@$(STAGE) "clippy" $(SUBMAKE) lint-rust

all-run: setup
	@$(STAGE) "types, stub, layers" $(SUBMAKE) lint-python
	$(call both,$(SUBMAKE) all-spark,$(STAGE) "Python tests" $(SUBMAKE) test-py,0)

all-spark:
	@$(STAGE) "Spark tests" $(SUBMAKE) test-spark
	@$(STAGE) "oldest Spark" $(SUBMAKE) smoke-oldest-spark

ci: test ## the same as test

# --- pages -----------------------------------------------------------------

# An environment of its own: CI's set-up does not grow, and no module has to be compiled.
DOCS_VENV := .venv/docs
DOCS_TOOLS := $(DOCS_VENV)/.installed

$(DOCS_TOOLS): requirements/docs.txt
	@$(STAGE) "Python environment in $(DOCS_VENV)" $(PYTHON) -m venv $(DOCS_VENV)
	@$(STAGE) "mkdocs from requirements/docs.txt" $(DOCS_VENV)/bin/python -m pip install \
		--disable-pip-version-check --no-input --progress-bar off -r requirements/docs.txt
	@touch $@

docs: $(DOCS_TOOLS) ## the site of docs/ in site/, strict: a dead link or an undocumented page fails
	@# Not --quiet: it hides warnings from --strict as well.
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build --strict
	@echo "site/index.html"

# --- show ------------------------------------------------------------------

demo: setup ## the flight board: upserts and reads on real flights, from PySpark
	$(BIN)/python -m demo.flight_board

demo-search: setup ## ten releases of a manual, searched while they are written; DEMO_ARGS="--quick"
	$(BIN)/python -m demo.manual $(DEMO_ARGS)

bench: $(TOOLS) ## run the benches of put, producers, object store, flush and scan
	cargo bench --workspace --bench put --bench producers --bench object_store
	cargo bench --workspace --bench table -- flush
	cargo bench --workspace --bench table -- scan

PEERS := .venv/.peers-installed

$(PEERS): $(TOOLS) requirements/bench.txt
	@$(STAGE) "peers from requirements/bench.txt" $(PIP_INSTALL) --only-binary :all: -r requirements/bench.txt
	@touch $@

bench-write: $(MODULE) $(PEERS) ## the write path beside its peers; BENCH_ARGS="--quick --only put"
	$(BIN)/python -m benches.write $(BENCH_ARGS)

# Hudi and Paimon have no jar for a later Spark.
bench-spark: $(MODULE) $(OLDEST_SPARK_FOLDER) .venv/pyspark-3.5.9 ## inside Spark, beside its peers; BENCH_ARGS="--quick"
	$(BIN)/python -m benches.spark $(BENCH_ARGS)

bench-compact: $(MODULE) ## compaction beside merge_insert; BENCH_ARGS="--quick"
	$(BIN)/python -m benches.compact $(BENCH_ARGS)

bench-changes: $(MODULE) $(PEERS) ## change feeds beside deltalake's; BENCH_ARGS="--full"
	$(BIN)/python -m benches.changes $(BENCH_ARGS)

bench-merge: $(MODULE) ## tables with a merge rule beside those without; BENCH_ARGS="--quick"
	$(BIN)/python -m benches.merge $(BENCH_ARGS)

bench-roaring: $(TOOLS) $(PEERS) ## the roaring table of PIP-16; BENCH_ARGS="--rows 20/2000000"
	$(BIN)/python -m benches.roaring $(BENCH_ARGS)

bench-read: $(MODULE) ## scans and lookups beside Lance's own; BENCH_ARGS="--quick --only scan"
	$(BIN)/python -m benches.read $(BENCH_ARGS)

bench-search: $(MODULE) ## vector search beside pylance's; BENCH_ARGS="--quick"
	$(BIN)/python -m benches.search $(BENCH_ARGS)

bench-all: $(MODULE) $(PEERS) $(OLDEST_SPARK_FOLDER) .venv/pyspark-3.5.9 ## every bench of lancemem in one sitting at one commit, into a new folder of out/bench-all; BENCH_ARGS="--quick"
	$(BIN)/python -m benches.sitting $(BENCH_ARGS)

bench-build: $(TOOLS) ## compile the benches, run none
	cargo bench --workspace --no-run

clean: ## remove what make made in this checkout (the shared target folder stays)
	rm -rf .venv dist out site spark-warehouse metastore_db derby.log
	rm -rf .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	rm -f python/lancemem/_lancemem*.so
	find $(PYTHON_DIRS) -name __pycache__ -type d -prune -exec rm -rf {} +
