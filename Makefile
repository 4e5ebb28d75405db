# What a newcomer needs: `make test`, `make quickstart`. Everything happens in .venv, nothing is installed elsewhere.
PYTHON ?= python3
BIN := .venv/bin
# Two processes: the suite is made for two cores, and more rarely help.
WORKERS ?= 2
INPUTS ?= 100000
POINTS ?= 5000
SHARE ?= 1

.DEFAULT_GOAL := help
.PHONY: help install test lint quickstart fuzz crash prove bench results clean

help: ## Show this help
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The stamp is newer than what decides the environment, or the environment is made again.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("smoothmix needs Python 3.11 or newer: set PYTHON=") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
# Apart from the others: beside a torchvision that does not fit this torch, transformers would fail.
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt --upgrade --no-deps --target .venv/timm timm torchvision
	touch $@

install: .venv/installed ## Make the virtual environment .venv with everything in it

test: .venv/installed ## Run all tests
	$(BIN)/pytest -n $(WORKERS) --dist loadfile

lint: .venv/installed ## Check style and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

quickstart: .venv/installed ## Train, certify and show the result on embedded data
	$(BIN)/smoothmix quickstart

fuzz: .venv/installed ## Feed every reader 100,000 damaged files (half an hour; INPUTS=1000 is a minute)
	$(BIN)/python -m tests.fuzz.run --inputs $(INPUTS)

prove: .venv/installed ## Compare noise and bounds with exact values, at full size (SHARE=0.01 is quick)
	$(BIN)/python -m tests.prove.grid --share $(SHARE)
	$(BIN)/python -m tests.prove.bounds --share $(SHARE)
	$(BIN)/python -m tests.prove.certification --share $(SHARE)

crash: .venv/installed ## Kill processes at 5,000 file operations and compare what others make of it (POINTS=100 is a minute)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.crash.run --points $(POINTS)

bench: .venv/installed ## Measure speed against reference loops, as ratios
	$(BIN)/python -m benchmarks

results: .venv/installed ## Compute the table of docs/results.md from the committed certificates
	$(BIN)/python -m benchmarks.results_table

clean: ## Remove the virtual environment and caches
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .fuzz
