# Every target makes .venv on first use and does all set-up; `make PYTHON=python3.12 test` chooses the interpreter.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := --quiet --disable-pip-version-check

.PHONY: demo test test-core test-browser test-versions lint docs kills wheel lock bench clean
demo: $(VENV)/dev
	$(BIN)/entourage demo --out demo

test: $(VENV)/dev
	$(BIN)/pytest -n auto --dist worksteal

# The tests of tables and arrays, in an environment without any extra.
test-core: $(VENV)-core/done
	$(VENV)-core/bin/pytest -n auto --dist worksteal

# The page of `entourage serve` in Debian's Chromium; SCREENSHOTS=docs/images also stores the pictures of docs/serve.md.
test-browser: $(VENV)/browser
	command -v chromium || command -v google-chrome || { apt-get update -qq && apt-get install --yes --quiet chromium; }
	ENTOURAGE_TESTS=browser $(BIN)/pytest tests/serve/browser

lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m experiments.check_figures

# Three kills and four faults of every command; python -m benchmarks.kill_commands makes 30 kills.
kills: $(VENV)/dev
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.kill_commands --kills 3 --jobs 2

# The site, from docs/, notebooks/ and the docstrings; `.venv/bin/mkdocs serve` shows it while it is edited.
docs: $(VENV)/dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir build/site

# Both distributions, installed in an empty environment, from which the demo runs.
wheel:
	rm -rf dist build weights-handwriting/build $(VENV)-wheel
	$(PYTHON) -m venv $(VENV)-wheel
	$(VENV)-wheel/bin/pip wheel $(PIP) --no-deps --wheel-dir dist . ./weights-handwriting
	$(VENV)-wheel/bin/pip install $(PIP) -c constraints.txt "$$(echo dist/entourage-[0-9]*.whl)[all]" dist/entourage_weights_handwriting-*.whl
	$(VENV)-wheel/bin/pip check
	cd $(VENV)-wheel && bin/entourage doctor && bin/entourage demo --out demo

# The tests of tables and arrays with each interpreter that is found, and with the oldest supported dependencies.
test-versions:
	set -e; for version in 3.11 3.12 3.13; do \
		command -v python$$version > /dev/null || { echo "python$$version: not found, skipped"; continue; }; \
		rm -rf $(VENV)-versions; python$$version -m venv $(VENV)-versions; \
		$(VENV)-versions/bin/pip install $(PIP) -e ".[test]"; \
		$(VENV)-versions/bin/pytest -n auto --dist worksteal; \
	done
	rm -rf $(VENV)-versions
	python3.11 -m venv $(VENV)-versions
	$(VENV)-versions/bin/pip install $(PIP) uv
	$(VENV)-versions/bin/uv pip compile pyproject.toml --extra test --resolution lowest-direct --python-version 3.11 --quiet -o $(VENV)-versions/lowest.txt
	$(VENV)-versions/bin/pip install $(PIP) -r $(VENV)-versions/lowest.txt -e .
	$(VENV)-versions/bin/pytest -n auto --dist worksteal

# requirements.lock: all packages of [all] with their hashes; dist/sbom.cdx.json: the same as a list of components.
lock:
	test -x $(VENV)-lock/bin/uv || $(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/pip install $(PIP) uv cyclonedx-bom
	$(VENV)-lock/bin/uv pip compile pyproject.toml --extra all --universal --generate-hashes -c constraints.txt --no-annotate --quiet --custom-compile-command "make lock" -o requirements.lock
	mkdir -p dist
	$(VENV)-lock/bin/cyclonedx-py requirements requirements.lock --pyproject pyproject.toml --output-reproducible --of JSON -o dist/sbom.cdx.json

BENCHMARKS := label_accuracy label_confidence label_neighbours label_speed embed_loss embed_metrics engrave_speed engrave_truth
bench: $(VENV)/bench
	mkdir -p results
	set -e; for b in $(BENCHMARKS); do $(BIN)/python -m benchmarks.$$b | tee results/$$b.txt.part; mv results/$$b.txt.part results/$$b.txt; done
	$(BIN)/python -m benchmarks.label_speed --isotropic | tee results/label_speed.isotropic.txt
	$(BIN)/python -m experiments.collect

clean:
	rm -rf $(VENV) $(VENV)-core $(VENV)-wheel $(VENV)-versions $(VENV)-lock demo build dist weights-handwriting/build

# The files .venv/dev, .venv/bench and .venv/browser mark what is installed; if pyproject.toml or constraints.txt changes, make installs again.
$(VENV)/%: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install $(PIP) -c constraints.txt -e ".[dev$(if $(filter-out dev,$*),$(comma)$*)]" -e weights-handwriting
	touch $@

$(VENV)-core/done: pyproject.toml constraints.txt
	test -x $(VENV)-core/bin/python || $(PYTHON) -m venv $(VENV)-core
	$(VENV)-core/bin/pip install $(PIP) -c constraints.txt -e ".[test]"
	touch $@

comma := ,
