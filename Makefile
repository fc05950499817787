# Everything a fresh checkout needs: Python >= 3.11 and a JDK >= 17.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo test long soak lint bench lock clean

setup: .venv/.ready .venv/.jars

.venv/.ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; set PYTHON=…"; exit 1; }
	@$(PYTHON) tools/check_java.py
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# Spark fetches Delta's JARs at the first start of a session; afterwards they are there.
.venv/.jars: .venv/.ready
	@$(BIN)/python -c 'import spark_partq; spark_partq.session("setup", "local[1]", {"spark.ui.enabled": "false"}).stop()' 2> .venv/jars.log \
		|| { cat .venv/jars.log; exit 1; }
	@touch $@

demo: setup
	$(BIN)/spark-partq demo

test: lint
	$(BIN)/python tools/run_tests.py

# What takes minutes: scenarios with Spark that `make test` runs without it, and the demo as a whole.
long: setup
	$(BIN)/python -m pytest -m long

# Many more seeds of the simulation than the tests run.
soak: setup
	$(BIN)/python -m spark_partq.testing.simulation --seeds 100000 --jobs 2
	$(BIN)/python -m spark_partq.testing.simulation --seeds 1000 --disk

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

bench: setup
	$(BIN)/python -m benchmarks

# Pin the newest versions that pyproject.toml allows.
lock:
	$(BIN)/pip-compile --quiet --all-extras --strip-extras --no-header --no-emit-index-url --no-emit-find-links \
		--no-emit-trusted-host --upgrade --output-file requirements.lock pyproject.toml

clean:
	rm -rf .demo .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse build dist
