# Every target sets up what it needs by itself, in .venv, without root.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEV := $(VENV)/.ready-dev

.PHONY: help demo test check docs reference format package bench faults fuzz clean

help:
	@echo "make demo    the embedded benchmark, three adaptations side by side, and its page"
	@echo "make test    all tests, with branch coverage"
	@echo "make check   format, lint, types, import rules, docs"
	@echo "make docs    the documentation as a site, in site/"
	@echo "make reference  pages that follow from the code, after a change of flags or settings"
	@echo "make format  rewrite the sources in the project's format"
	@echo "make package the wheel and the sdist, installed and used in a fresh environment"
	@echo "make bench   the benchmarks: ratios, and the demo's claim over ten seeds"
	@echo "make faults  kill runs, fill disks, damage files, run long streams: nothing is lost"
	@echo "make fuzz    every reader on damaged files, for two minutes; a hostile folder"
	@echo "make clean   remove the environment and the caches of tools"

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(DEV): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(READY)
	$(BIN)/driftwise demo

test: $(DEV)
	$(BIN)/python -m pytest -n 2 --dist worksteal --cov --cov-report=term

check: $(DEV) docs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/docs

docs: $(DEV)
	$(BIN)/zensical build --strict --clean

reference: $(DEV)
	$(BIN)/python tools/reference_pages.py

format: $(DEV)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

package: $(DEV)
	.ci/package $(BIN)/python

bench: $(READY)
	-$(BIN)/python benchmarks/bench_step.py
	-$(BIN)/python benchmarks/bench_epochs.py
	-$(BIN)/python benchmarks/bench_precision.py
	-$(BIN)/python benchmarks/bench_avalanche.py
	-$(BIN)/python benchmarks/bench_memory.py
	-$(BIN)/python benchmarks/bench_evaluate.py
	-$(BIN)/python benchmarks/bench_run.py
	-$(BIN)/python benchmarks/bench_keeper.py
	-$(BIN)/python benchmarks/bench_startup.py
	-$(BIN)/python benchmarks/bench_growth.py
	$(BIN)/python benchmarks/performance_page.py
	$(BIN)/python benchmarks/bench_transforms.py
	$(BIN)/python benchmarks/bench_stream.py
	$(BIN)/python benchmarks/bench_large_data.py
	$(BIN)/python benchmarks/bench_two_sample.py
	$(BIN)/python benchmarks/detect_false_alarms.py --data digits --sizes 20
	$(BIN)/python benchmarks/demo_claim.py

faults: $(DEV)
	$(BIN)/python benchmarks/faults.py
	$(BIN)/python benchmarks/long_stream.py

fuzz: $(DEV)
	$(BIN)/python benchmarks/fuzz.py
	$(BIN)/python benchmarks/hostile.py

clean:
	rm -rf $(VENV) .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache .cache site
