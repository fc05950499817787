# Everything a fresh checkout needs: Python >= 3.11 and a JDK >= 17.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo test long soak faults mutants lint docs docs-offline bench bench-peers lock clean

setup: .venv/.ready .venv/.jars

.venv/.ready: requirements.lock requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; set PYTHON=…"; exit 1; }
	@$(PYTHON) tools/check_java.py
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --require-hashes --requirement requirements.lock --requirement requirements-dev.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# Spark fetches Delta's JARs at the first start of a session; afterwards they are there.
.venv/.jars: .venv/.ready
	@$(BIN)/python -c 'import spark_partq; spark_partq.session("setup", "local[1]", {"spark.ui.enabled": "false"}).stop()' 2> .venv/jars.log \
		|| { cat .venv/jars.log; exit 1; }
	@touch $@

demo: setup
	$(BIN)/spark-partq demo

# Lint is part of it.
test: setup
	$(BIN)/python tools/run_tests.py

# Classes that each of the tests' JVMs would read by itself.
.venv/classes.jsa: .venv/.jars
	@$(BIN)/python -m tests.jvm > .venv/classes.log 2>&1 || { cat .venv/classes.log; exit 1; }

# What takes minutes: scenarios with Spark that `make test` runs without it, and the demo as a whole.
long: .venv/classes.jsa
	$(BIN)/python -m pytest -m long

# Many more seeds of the simulation, and damaged inputs, than the tests run; the fuzzers also bound time and memory.
soak: setup
	$(BIN)/python -m spark_partq.testing.simulation --seeds 100000 --jobs 2
	$(BIN)/python -m spark_partq.testing.simulation --seeds 1000 --disk
	$(BIN)/python -m tests.fuzz --inputs 1000000

# Histories of real processes that are killed, stopped, resized and moved; `make faults SEED=7 HISTORIES=20` repeats the plans of a run.
# With Go on the PATH a second judge, Porcupine, checks each; without it the program says that this was not done.
faults: setup
	$(BIN)/python -m tests.faults --histories $(or $(HISTORIES),10) $(if $(SEED),--seed $(SEED)) --jobs 2

# Small changes of the product's code that a test should notice; `make mutants SEED=7` repeats a run.
mutants: setup
	$(BIN)/python -m tests.mutants --sample 500 $(if $(SEED),--seed $(SEED)) --jobs 2

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	@if command -v go > /dev/null; then cd tests/faults/linearizable && test -z "$$(gofmt -l . | tee /dev/stderr)"; fi
	$(BIN)/bandit --quiet --recursive --configfile pyproject.toml spark_partq jobs tools pyspark_partq.py

# The documentation site, in site/. A broken link or a page that the navigation leaves out fails it.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The same with its own copy of the program that draws the diagrams, which is fetched by npm; then nothing is loaded from the network.
docs-offline: .mermaid/mermaid.min.js docs

.mermaid/mermaid.min.js:
	mkdir -p .mermaid
	npm pack --silent --pack-destination .mermaid mermaid@11.17.2
	tar -xzOf .mermaid/mermaid-11.17.2.tgz package/dist/mermaid.min.js > $@.new
	echo "581ed7d74bd9048d0e3a91363927d72ef22942d7722546b27f7cc29e35390eb8  $@.new" | sha256sum --check
	mv $@.new $@

bench: setup
	$(BIN)/python -m benchmarks

# The same rows and the same events in a queue, Kafka, Delta and Runnel, on this machine. One that misses a bound, or cannot start, does not
# keep back the others; then the target fails at its end.
OLD_PYTHON ?= python3.9
bench-peers: setup
	@status=0; \
	for run in .peers .kafka_rebalance " assignors" ".runnel_peer --python $(OLD_PYTHON)"; do \
		echo "$(BIN)/python -m benchmarks$$run"; \
		$(BIN)/python -m benchmarks$$run || status=1; \
	done; \
	exit $$status

# Pin the newest versions that pyproject.toml allows: what the package needs to run, and what the repository needs beside it.
LOCK := $(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-header --no-emit-index-url --no-emit-find-links \
	--no-emit-trusted-host --upgrade pyproject.toml

lock:
	$(LOCK) --output-file requirements.lock
	$(LOCK) --all-extras --constraint requirements.lock --output-file requirements-dev.lock

clean:
	rm -rf .demo .mutants .mermaid .linearizable .versitygw site .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse build dist
