# The verbs of daily work. `make` alone lists them; what needs more than a line is a program.

.DEFAULT_GOAL := help
.PHONY: help setup build program install demo demo-agent dev test test-fast prove openapi console mcp chaos chaos-mutants lint fmt schema docs deny deny-offline bench bench-arguments

# A shell that has not been restarted since rustup came does not have it on its PATH yet.
export PATH := $(PATH):$(HOME)/.cargo/bin

PYTHON3 ?= python3
TOOLFLEET := $(or $(CARGO_TARGET_DIR),target)/debug/toolfleet
# Where the servers and the Python with the NATS client are; scripts/setup.py writes it.
TOOLS := . ./.tools/env &&
ARGS ?= --tools examples/tools
CHAOS_PROGRAM := $(or $(CARGO_TARGET_DIR),target)/debug/chaos
RELEASE := $(or $(CARGO_TARGET_DIR),target)/release
BENCH ?=
SEED ?= 1-3
SECONDS ?= 60
MODE ?= safety
CHAOS ?=
SHORT ?=
# Where `make install` puts the program: PREFIX/bin, or beside cargo.
PREFIX ?=
BIN = $(DESTDIR)$(if $(PREFIX),$(PREFIX),$(or $(CARGO_HOME),$(HOME)/.cargo))/bin

help: ## list the verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' Makefile

setup: ## install what is missing: C compiler, Postgres, nats-server, Prometheus, Python and JavaScript packages, Node (idle the second time)
	@$(PYTHON3) scripts/setup.py

build: setup ## compile everything
	cargo build --workspace --locked

program: setup
	cargo build --locked --workspace --bin toolfleet

install: setup ## the optimised program on your PATH: beside cargo, or in PREFIX/bin
	cargo build --release --locked -p toolfleet
	install -d "$(BIN)"
	install -m 755 "$(RELEASE)/toolfleet" "$(BIN)/toolfleet"
	@echo "installed $(BIN)/toolfleet; \`. $(CURDIR)/.tools/env\` tells it where the servers are that \`toolfleet dev\` starts"

demo: setup ## the whole thing on this machine in a minute, with workers and a service killed on the way
	cargo build --locked --workspace --bin toolfleet --bin example-make-image
	$(TOOLS) "$$TOOLFLEET_PYTHON" examples/demo.py --toolfleet "$(TOOLFLEET)"

demo-agent: program ## an agent that is killed at random moments and goes on, its effects counted; SHORT=--short
	$(TOOLS) "$$TOOLFLEET_PYTHON" examples/demo_agent.py --toolfleet "$(TOOLFLEET)" $(SHORT)

dev: program ## a fleet for one person with the example tools, until Ctrl-C; options in ARGS=
	$(TOOLS) "$(TOOLFLEET)" dev $(ARGS)

test: build ## every test, then the black-box proofs in their short form
	cargo test --workspace --doc --locked --quiet
	$(TOOLS) if command -v cargo-nextest >/dev/null; \
	  then cargo nextest run --workspace --locked; passed=$$?; \
	    "$$TOOLFLEET_PYTHON" scripts/slowest.py "$(or $(CARGO_TARGET_DIR),target)/nextest/default/junit.xml"; exit $$passed; \
	  else cargo test --workspace --exclude fleet-tests --lib --bins --tests --locked \
	    && cargo test -p fleet-tests --lib --tests --locked -- --test-threads=2; fi
	$(TOOLS) "$$TOOLFLEET_PYTHON" tests/blackbox/run.py --short
	$(TOOLS) "$$TOOLFLEET_PYTHON" tests/blackbox/run.py --short --roles --only first_call --only one_key --only once_killed

test-fast: setup ## the tests inside the crates only, without the fleet scenarios
	$(TOOLS) cargo test --workspace --exclude fleet-tests --lib --locked

prove: build ## the black-box proofs in full, every test that waits out a lease, loses thousands of pointers or counts races, and 100,000 schedules of each part of a process
	$(TOOLS) "$$TOOLFLEET_PYTHON" tests/blackbox/run.py
	$(TOOLS) "$$TOOLFLEET_PYTHON" tests/blackbox/run.py --roles
	$(TOOLS) cargo test -p fleet-tests --locked --test scenarios --test ledger -- --ignored --nocapture --test-threads=1
	SCHEDULES=50000 cargo test -p fleet-schedules --locked -- --nocapture --test-threads=2

openapi: program ## schemathesis tries the document of the API against a gateway (installed from PyPI the first time); SHORT=--short
	$(TOOLS) "$$TOOLFLEET_PYTHON" tests/openapi/run.py --toolfleet "$(TOOLFLEET)" $(SHORT)

console: program ## a browser walks through the console: journeys, pictures, accessibility, hostile texts, without its script (Chromium from the system's packages and packages from npm are installed the first time); SHORT=--short
	$(TOOLS) "$$TOOLFLEET_PYTHON" tests/console/run.py --toolfleet "$(TOOLFLEET)" $(SHORT)

mcp: build ## the conformance suite of MCP, three clients and servers of others try a gateway and a worker (installed from npm and PyPI the first time), and what tools received; SHORT=--short
	$(TOOLS) "$$TOOLFLEET_PYTHON" tests/mcp/run.py --toolfleet "$(TOOLFLEET)" --fixtures "$(dir $(TOOLFLEET))fleet_tests_mcp" $(SHORT)
	$(TOOLS) "$$TOOLFLEET_PYTHON" tests/mcp/clients.py --toolfleet "$(TOOLFLEET)" --fixtures "$(dir $(TOOLFLEET))fleet_tests_mcp"
	$(TOOLS) "$$TOOLFLEET_PYTHON" tests/mcp/servers.py --toolfleet "$(TOOLFLEET)"
	$(TOOLS) "$$TOOLFLEET_PYTHON" tests/mcp/promises.py --toolfleet "$(TOOLFLEET)"

chaos: build ## a fleet under fire; SEED=7 or SEED=1-20, SECONDS=60, MODE=safety or liveness, CHAOS=further options
	$(TOOLS) "$(CHAOS_PROGRAM)" run --seeds $(SEED) --seconds $(SECONDS) --mode $(MODE) $(CHAOS)

chaos-mutants: setup ## known mistakes, each of which the fire must bring to light; SEED=1-20, SECONDS=60
	cargo run --locked -p fleet-chaos --bin chaos -- plant --into target/mutants
	CARGO_TARGET_DIR=target/mutants/target cargo build --locked -p fleet-chaos --manifest-path target/mutants/Cargo.toml
	$(TOOLS) target/mutants/target/debug/chaos mutants --seeds $(SEED) --seconds $(SECONDS) $(CHAOS)

bench: setup ## what a fleet does on this machine beside the bare statements, in about two minutes; further options in BENCH=
	cargo build --release --locked -p toolfleet
	cargo build --release --locked -p toolfleet-floor
	$(TOOLS) "$(RELEASE)/toolfleet" bench --dev --floor $(BENCH)

bench-arguments: ## what parsing, checking and hashing of arguments costs, and that nothing makes it grow; SHORT=--short
	cargo bench -p fleet --bench door --locked -- $(SHORT)

lint: setup ## formatting, clippy and documentation, warnings denied
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked

fmt: ## format the code
	cargo fmt --all

schema: setup ## write migrations/schema.sql anew from the migrations
	$(TOOLS) UPDATE_SCHEMA=1 cargo test -p fleet-tests --locked migrations

docs: setup ## build the crates' documentation and say where it is
	cargo doc --workspace --no-deps --locked
	@echo "open $(or $(CARGO_TARGET_DIR),target)/doc/fleet/index.html"

deny-offline: ## of these, what can be checked without the network; it says what was not
	$(PYTHON3) scripts/deny_offline.py

deny: ## advisories, licences, bans and sources of the dependencies
	@command -v cargo-deny >/dev/null || { \
	  echo "cargo-deny is not here; get it with: cargo install cargo-deny --locked"; exit 69; }
	cargo deny --locked check
