# Every target makes .venv on first use and does all set-up; `make PYTHON=python3.12 test` chooses the interpreter.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-browser lint bench clean
demo: $(VENV)/dev
	$(BIN)/entourage demo --out demo

test: $(VENV)/dev
	$(BIN)/pytest -n auto --dist worksteal

# The page of `entourage serve` in Debian's Chromium; SCREENSHOTS=docs/images also stores the pictures of docs/serve.md.
test-browser: $(VENV)/browser
	command -v chromium || command -v google-chrome || { apt-get update -qq && apt-get install --yes --quiet chromium; }
	ENTOURAGE_TESTS=browser $(BIN)/pytest tests/serve/test_browser.py

lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

BENCHMARKS := label_accuracy label_confidence label_neighbours label_speed embed_loss embed_metrics engrave_speed engrave_truth
bench: $(VENV)/bench
	mkdir -p results
	set -e; for b in $(BENCHMARKS); do $(BIN)/python -m benchmarks.$$b | tee results/$$b.txt.part; mv results/$$b.txt.part results/$$b.txt; done
	$(BIN)/python -m benchmarks.label_speed --isotropic | tee results/label_speed.isotropic.txt
	$(BIN)/python -m experiments.collect

clean:
	rm -rf $(VENV) demo build dist

# The files .venv/dev, .venv/bench and .venv/browser mark what is installed; if pyproject.toml or constraints.txt changes, make installs again.
$(VENV)/%: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev$(if $(filter-out dev,$*),$(comma)$*)]"
	touch $@

comma := ,
