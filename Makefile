# Every target makes .venv on first use and does all set-up; `make PYTHON=python3.12 test` chooses the interpreter.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := --quiet --disable-pip-version-check

.PHONY: demo test test-core test-browser lint wheel bench clean
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
	ENTOURAGE_TESTS=browser $(BIN)/pytest tests/serve/test_browser.py

lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Both distributions, installed in an empty environment, from which the demo runs.
wheel:
	rm -rf dist build weights-handwriting/build $(VENV)-wheel
	$(PYTHON) -m venv $(VENV)-wheel
	$(VENV)-wheel/bin/pip wheel $(PIP) --no-deps --wheel-dir dist . ./weights-handwriting
	$(VENV)-wheel/bin/pip install $(PIP) -c constraints.txt "$$(echo dist/entourage-[0-9]*.whl)[all]" dist/entourage_weights_handwriting-*.whl
	$(VENV)-wheel/bin/pip check
	cd $(VENV)-wheel && bin/entourage doctor && bin/entourage demo --out demo

BENCHMARKS := label_accuracy label_confidence label_neighbours label_speed embed_loss embed_metrics engrave_speed engrave_truth
bench: $(VENV)/bench
	mkdir -p results
	set -e; for b in $(BENCHMARKS); do $(BIN)/python -m benchmarks.$$b | tee results/$$b.txt.part; mv results/$$b.txt.part results/$$b.txt; done
	$(BIN)/python -m benchmarks.label_speed --isotropic | tee results/label_speed.isotropic.txt
	$(BIN)/python -m experiments.collect

clean:
	rm -rf $(VENV) $(VENV)-core $(VENV)-wheel demo build dist weights-handwriting/build

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
