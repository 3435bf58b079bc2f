# Every target makes what it needs: a virtual environment in .venv, and nothing outside this folder but caches.
# `make PYTHON=python3.12 test` takes another Python for a .venv that is not there yet.

PYTHON ?= python3
OLDEST := 3.10
VENV := .venv
PY := $(VENV)/bin/python
PYTEST_ARGS ?=
WORKERS ?= logical

# The tools of .venv before all others, and Spark's workers on the same Python as the driver. Spark starts Python anew for
# each source, plan and stream, so that bytecode is kept whatever the shell says.
RUN := PYTHONDONTWRITEBYTECODE= PATH="$(CURDIR)/$(VENV)/bin:$$PATH" PYSPARK_PYTHON="$(CURDIR)/$(PY)" PYSPARK_DRIVER_PYTHON="$(CURDIR)/$(PY)"

# Rust's build tool, found as native/extension.py finds it; empty if there is none. `make CARGO= …` does without it.
CARGO ?= $(shell PATH="$$PATH$(if $(CARGO_HOME),:$(CARGO_HOME)/bin)"; command -v cargo)
NATIVE := ticdc_source/kernels/_native.abi3.so

# What targets need: the environment, and the native path if it can be built.
READY := $(VENV)/.dev $(if $(CARGO),$(NATIVE))

# One process runs all tests that share the Spark session, the others run beside it (tests/fixtures.py).
SPREAD := -n $(WORKERS) --dist loadgroup --no-loadscope-reorder --durations=20

# For tests that take as long as they are told to.
HOURS := -o timeout=0 -o faulthandler_timeout=3600

# ticdc-lakehouse has no compiled part: one wheel is for all machines.
LAKEHOUSE_WHEEL := $(PY) -m pip wheel --quiet --no-deps --wheel-dir dist ./lakehouse

# $(call timed,command): run it, and print how long it took.
timed = @began=$$(date +%s); $(RUN) $(1); code=$$?; took=$$(($$(date +%s) - began)); \
	echo "make $@: $$((took / 60)) min $$((took % 60)) s"; exit $$code

.DEFAULT_GOAL := help
.PHONY: help demo tour tidb test test-slow test-all test-core test-restarts test-faults test-sync fuzz lint types bench bench-quick native wheel wheels sdist sbom version docs site pictures clean

help:  ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-13s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

demo: $(READY)  ## See it work: a broker, messages of TiCDC, Spark reading them
	$(RUN) $(PY) -m examples.demo

test: $(READY)  ## Run what a commit needs, in 4 minutes (Java 17 or newer; Maven the first time); PYTEST_ARGS="-k time" for some
	$(call timed,$(PY) -m pytest $(SPREAD) -m "not slow" $(PYTEST_ARGS))

test-slow: $(READY)  ## Run what CI runs after `make test`, in 25 minutes: the tests marked slow, without the long ones
	$(call timed,$(PY) -m pytest $(SPREAD) -m "slow and not long" $(PYTEST_ARGS))

test-all: $(READY)  ## Run all tests, in two hours; `make test test-all` runs none twice
	$(call timed,$(PY) -m pytest $(SPREAD) $(if $(filter test,$(MAKECMDGOALS)),-m slow) $(PYTEST_ARGS))

test-core: $(READY)  ## Run the part of `make test` that needs neither a broker nor Spark: no Java, a minute
	$(call timed,$(PY) -m pytest $(SPREAD) -m "not broker and not spark and not slow" $(PYTEST_ARGS))

test-restarts: $(READY)  ## Kill streams at 20 moments, where `make test-all` does at 3; TICDC_SEED=… repeats a case
	TICDC_KILLS=20 $(RUN) $(PY) -m pytest -s $(HOURS) tests/spark/test_restarts.py tests/spark/test_attempts.py -k kill $(PYTEST_ARGS)

test-faults: $(READY)  ## Kill a broker of three under a stream 20 times, stop all for 2 minutes; 100 reads with one dead, 100 with one frozen
	TICDC_KILLS=20 TICDC_AWAY_SECONDS=120 TICDC_READS=100 $(RUN) $(PY) -m pytest -s $(HOURS) \
	  tests/spark/test_cluster_faults.py tests/sources/kafka/test_cluster.py $(PYTEST_ARGS)

tour: $(READY)  ## See a topic in pictures: build/tour/index.html, from the demo's messages on a broker, read with Spark
	$(RUN) $(PY) -m examples.tour $(ARGS)

tidb: $(READY)  ## Build a TiDB for tests into the cache, once (Go 1.23 or newer, Maven; ten minutes)
	$(RUN) $(PY) -m tests.tidb.server

test-sync: $(READY)  ## Kill ticdc-lakehouse sync 10 times on Delta and on Iceberg, in both modes; TICDC_SEED=… for another case
	TICDC_KILLS=10 $(RUN) $(PY) -m pytest -s $(HOURS) lakehouse/tests/syncs/test_sync_database.py $(PYTEST_ARGS)

fuzz: $(READY)  ## Read 20,000 damaged messages in all modes and formats, with the native path and without; ARGS="--mutants 1000000 --seed 7"
	$(RUN) $(PY) -m tests.fuzz $(ARGS)

lint: $(READY)  ## Check style and formatting, of Rust too where there is cargo
	$(RUN) $(PY) -m ruff check .
	$(RUN) $(PY) -m ruff format --check .
ifdef CARGO
	cd native && $(CARGO) fmt --check && $(CARGO) clippy --quiet --locked --all-targets -- -D warnings
else
	@echo "There is no cargo: native/ is not checked"
endif

types: $(READY)  ## Check types
	$(RUN) MYPYPATH=lakehouse $(PY) -m mypy
	$(RUN) $(PY) -m mypy lakehouse/tests

bench: $(VENV)/.benchmarks $(READY)  ## Measure, 18 minutes; results into benchmarks/results; `make bench docs` also writes the pages
	$(call timed,$(PY) -m benchmarks)

bench-quick: $(VENV)/.benchmarks $(READY)  ## Measure less, two minutes
	$(call timed,$(PY) -m benchmarks --quick)

native: $(PY)  ## Build the native path in place (Rust): ticdc_source/kernels/_native.abi3.so
	$(PY) native/extension.py

wheel: $(PY)  ## Build the wheels of both packages for a cluster into dist, with the native path (Rust); says which glibc it needs
	$(PY) native/extension.py --wheel dist
	$(LAKEHOUSE_WHEEL)

wheels: $(VENV)/.wheels  ## Build wheels of both packages into dist: for any Linux on x86_64 and aarch64, with zig (Rust), and without the native path
	rm -f dist/*.whl
	TICDC_BUILD_NATIVE=0 $(PY) -m pip wheel --quiet --no-deps --wheel-dir dist .
	$(PY) native/extension.py --wheels dist
	$(LAKEHOUSE_WHEEL)
	for wheel in dist/*manylinux*.whl; do $(PY) -m auditwheel show $$wheel || exit 1; done

sdist: $(VENV)/.wheels  ## Build the sdists of both packages into dist, with the sources of all crates: they build without a network
	cd lakehouse && "$(CURDIR)/$(PY)" -m hatchling build --target sdist --directory ../dist
	$(PY) native/extension.py --vendor
	$(PY) -m hatchling build --target sdist --directory dist; code=$$?; rm -rf native/vendor; exit $$code

sbom: $(VENV)/.wheels  ## Write what the wheel of this machine in dist depends on, with licences: packages (CycloneDX) and crates
	rm -rf build/sbom && $(PYTHON) -m venv build/sbom
	build/sbom/bin/python -m pip install --quiet "$$(ls dist/*_$$(uname -m).whl)[all]" ./lakehouse
	$(PY) -m cyclonedx_py environment --output-file dist/sbom.cdx.json build/sbom/bin/python
	cd native && $(CARGO) tree --locked --edges normal --prefix none --format "{p} {l}" | sed 's| (/.*)||; s| (\*)||' | sort -u > ../dist/crates.txt

version: $(READY)  ## Fail unless TAG=v… is the version of both packages, and the changelog has a section for it
	@version=$$($(PY) -c "import ticdc_source; print(ticdc_source.__version__)"); \
	test "$(TAG)" = "v$$version" || { echo "the tag is $(TAG), and ticdc_source/__init__.py says $$version" >&2; exit 1; }; \
	grep -qx "version = \"$$version\".*" lakehouse/pyproject.toml || { echo "lakehouse/pyproject.toml has another version" >&2; exit 1; }; \
	grep -qF "ticdc-source[tidb]==$$version" lakehouse/pyproject.toml || { echo "ticdc-lakehouse asks for another ticdc-source" >&2; exit 1; }; \
	grep -qF "## [$$version]" CHANGELOG.md || { echo "CHANGELOG.md has no section [$$version]" >&2; exit 1; }

docs: $(READY)  ## Write the generated parts of the documentation
	$(RUN) $(PY) -m website.generate_docs

site: $(READY)  ## Build the site of all pages into build/site, with all links checked; `make site SERVE=1` shows it
	$(RUN) NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --quiet --strict
	@echo "build/site/index.html is there"
ifdef SERVE
	$(PY) -m http.server --bind 127.0.0.1 --directory build/site
endif

pictures: $(READY)  ## Draw the pictures of commands in docs/images again (Java, for a broker)
	$(RUN) $(PY) -m website.pictures

clean:  ## Remove .venv and what tools left behind
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache build dist metastore_db derby.log spark-warehouse artifacts
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The general path stands in where the crate cannot be built.
$(NATIVE): $(wildcard native/Cargo.* native/src/*.rs) ticdc_source/kernels/contract.py ticdc_source/kernels/_native.pyi | $(VENV)/.dev
	-$(PY) native/extension.py

# A stamp is newer than pyproject.toml when the environment has what pyproject.toml asks for.
# pip 25.1 is the first that knows dependency groups.
$(VENV)/.dev: pyproject.toml lakehouse/pyproject.toml | $(PY)
	@echo "Installing PySpark and the development tools into $(VENV), only this once: some minutes, 600 MB"
	$(PY) -m pip install --quiet --upgrade "pip>=25.1"
	$(PY) -m pip install --editable ".[large-messages,prometheus]" --editable lakehouse --group dev
	@touch $@

$(VENV)/.wheels: $(VENV)/.dev
	$(PY) -m pip install --quiet --group wheels
	@touch $@

$(VENV)/.benchmarks: $(VENV)/.dev
	$(PY) -m pip install --quiet --group benchmarks
	@touch $@

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < tuple(map(int, "$(OLDEST)".split("."))))' || { \
	  echo "Python $(OLDEST) or newer is needed, and '$(PYTHON)' is not: try make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
