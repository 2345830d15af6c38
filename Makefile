# One command for each thing a developer wants; `make help` lists them.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

TARGET := $(or $(CARGO_TARGET_DIR),target)
KAFKA_LIBS ?= $(abspath $(TARGET)/kafka-libs)
PROGRAM := $(TARGET)/debug/tachograph
PARTS := kafka kafka-secure kafka-three clickhouse clickhouse-secure prometheus
SIM_SEEDS ?= 2000
CHAOS_FAULTS ?= 50
# One set of features for every step of `make test`, so that the crate is compiled once. Not for the
# demo: OpenSSL costs minutes.
ALL := demo,tls
export KAFKA_LIBS
# Without optimisation: it is built in half the time and runs for seconds.
DENY := cargo install --locked --debug --no-default-features cargo-deny --version 0.20.2

# $(call need,command,how to install it)
need = command -v $(1) >/dev/null || { echo "$(1) is missing; install it with: $(2)" >&2; exit 1; }
step = @echo "==> $(1)"

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: tools engine ## build and run the demo; ARGS="..." goes to `tachograph demo`
	$(call step,build)
	@cargo build --locked --features demo
	$(call step,demo)
	@exec $(PROGRAM) demo $(ARGS)

.PHONY: test
test: tools test-tools engine kafka ## everything CI checks, with real Kafka, ClickHouse, Prometheus
	@rm -rf "$(TARGET)/real-parts"
	$(call step,format)
	@cargo fmt --check
	$(call step,clippy)
	@cargo clippy --locked --all-targets --features $(ALL) -- -D warnings
	$(call step,licences and sources of dependencies)
	@cargo deny --locked --all-features --log-level error check --hide-inclusion-graph bans licenses sources
	$(call step,without TLS)
	@cargo clippy --locked --features demo -- -D warnings
	$(call step,core alone)
	@cargo check --locked --lib --no-default-features
	$(call step,tests)
	@cargo test --locked --features $(ALL)
	$(call step,documentation)
	@RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --features $(ALL)
	$(call step,real parts took part)
	@for part in $(PARTS); do \
		[[ -f "$(TARGET)/real-parts/$$part" ]] || \
			{ echo "no test was served by a real $$part" >&2; exit 1; }; \
	done
	$(call step,all green)

.PHONY: lint
lint: ## format check and clippy
	$(call step,format)
	@cargo fmt --check
	$(call step,clippy)
	@cargo clippy --locked --all-targets --features $(ALL) -- -D warnings

.PHONY: sim
sim: tools ## the long simulation; SIM_SEEDS=2000, or SIM_SEED=53 to repeat one
	$(call step,simulation)
	@SIM_SEEDS=$(SIM_SEEDS) cargo test --locked --release --test simulation

.PHONY: chaos
chaos: tools engine kafka ## faults against real brokers, engine and daemons; CHAOS_FAULTS=50, CHAOS_SEED=7 repeats a plan
	$(call step,chaos)
	@CHAOS_FAULTS=$(CHAOS_FAULTS) cargo test --locked --features demo --test chaos -- --nocapture

.PHONY: mutants
mutants: tools ## does the simulation notice planted mistakes
	$(call step,mutants)
	@tests/simulation/mutants.sh

.PHONY: bench
bench: tools engine kafka ## benchmarks against the real parts
	$(call step,benchmarks)
	@cargo bench --locked --features demo

.PHONY: pictures
pictures: tools engine ## draw the pictures of the README anew
	@$(call need,python3,apt-get install -y python3 python3-venv)
	$(call step,build)
	@cargo build --locked --features demo
	$(call step,pictures)
	@dashboards/pictures/make.sh

.PHONY: engine
engine: ## fetch the embedded ClickHouse engine (178 MB, once)
	$(call step,ClickHouse engine)
	@deploy/fetch-engine.sh

.PHONY: kafka
kafka: ## fetch Kafka's jars for the tests (43 MB, once)
	$(call step,Kafka)
	@$(call need,java,apt-get install -y --no-install-recommends default-jre-headless)
	@$(call need,mvn,apt-get install -y --no-install-recommends maven)
	@$(MAKE) --silent "$(KAFKA_LIBS)/kafka.jsa"

# The class archive is the last thing that `jars` makes.
$(KAFKA_LIBS)/kafka.jsa: tests/kafka/pom.xml
	@echo "    fetching Kafka with Maven (43 MB)"
	@tests/kafka/kafka.sh jars
	@touch "$@"

.PHONY: tools
tools:
	$(call step,prerequisites)
	@$(call need,cargo,curl --proto =https -sSf https://sh.rustup.rs | sh -s -- -y)
	@$(call need,cc,apt-get install -y build-essential)
	@$(call need,c++,apt-get install -y build-essential)
	@$(call need,make,apt-get install -y build-essential)
	@$(call need,npm,apt-get install -y npm)

.PHONY: test-tools
test-tools:
	@$(call need,java,apt-get install -y --no-install-recommends default-jre-headless)
	@$(call need,mvn,apt-get install -y --no-install-recommends maven)
	@$(call need,python3,apt-get install -y python3)
	@$(call need,prometheus,apt-get install -y --no-install-recommends prometheus)
	@$(call need,promtool,apt-get install -y --no-install-recommends prometheus)
	@$(call need,openssl,apt-get install -y openssl)
	@$(call need,cargo-deny,$(DENY))
	@perl -MFindBin -MIPC::Cmd -MPod::Usage -e 1 2>/dev/null || \
		{ echo "perl's modules are missing; install them with: apt-get install -y perl" >&2; exit 1; }
