# `make demo` and `make test` work from a fresh clone; the second time they only run.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet
CORE := $(VENV)/.core
READY := $(VENV)/.ready

.PHONY: demo test coverage lint docs bench load fuzz attack audit lock clean
demo: $(CORE)
	$(BIN)/harmonium demo

# lint, types, layers, tests; prints the slowest 20
test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --durations=20

# the tests again, then the total coverage and the least covered files
coverage: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --cov --cov-report=
	@$(BIN)/coverage report | sed -n '1,12p;/^TOTAL/p'

lint: $(READY)
	$(BIN)/ruff check -q .
	$(BIN)/ruff format -q --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# the site, into build/site; warnings are errors (the variable silences a notice about mkdocs 2)
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# against PyKEEN, in one run; DATA=folder of FB15K-237, default: a random graph of its shape
bench: $(READY) .venv-pykeen/.ready
	$(BIN)/python benchmarks/bench_cpu.py results/bench-cpu.json $(if $(DATA),--data $(DATA))

.venv-pykeen/.ready:
	$(PYTHON) -m venv .venv-pykeen
	.venv-pykeen/bin/python -m pip install --quiet --constraint constraints.txt torch numpy
	.venv-pykeen/bin/python -m pip install --quiet 'pykeen==1.11.*'
	touch $@

# core dependencies only; torch first and pinned, so that no other package pulls in a different build
$(CORE): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) --constraint constraints.txt torch numpy
	$(PIP) --constraint constraints.txt --editable .
	touch $@

# everything `make test` needs; LOCKED=1 (CI): every file but torch must match its sha256 in requirements.lock
ifdef LOCKED
$(READY): pyproject.toml requirements.lock
	$(PYTHON) -m venv $(VENV)
	$(PIP) --require-hashes --no-deps --requirement requirements.lock
	$(PIP) --constraint constraints.txt torch
	$(PIP) --no-deps --no-build-isolation --editable .
	$(BIN)/python -m pip check
	touch $(CORE) $@
else
$(READY): $(CORE)
	$(PIP) --constraint constraints.txt --editable '.[dev]'
	touch $@
endif

# load test of the server: 64 clients, then 1,000; RUN=folder of a larger run to query as well
load: $(READY)
	$(BIN)/python benchmarks/bench_serve.py results/load.json $(RUN)

# every reader with INPUTS inputs from hypothesis and as many from atheris (coverage-guided, which adds to its corpus,
# fuzz/corpus.tar.xz); then the server's API. INPUTS=15000 makes a million in all
INPUTS ?= 3000
fuzz: $(READY)
	FUZZ=$(INPUTS) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 tests/test_fuzz.py
	$(PIP) --constraint constraints.txt 'atheris>=3'
	OMP_NUM_THREADS=1 $(BIN)/python fuzz/readers.py all -runs=$(INPUTS)
	FUZZ=300 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 tests/server/test_schema.py

# attacks on run folders, inputs and ranks, ATTACK times as many as in `make test`
ATTACK ?= 20
attack: $(READY)
	ATTACK=$(ATTACK) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 tests/attack

# known vulnerabilities of the pinned versions; fails if one of them cannot be looked up
audit: $(READY)
	$(PIP) --constraint constraints.txt 'pip-audit>=2.7'
	$(BIN)/pip-audit --strict --no-deps --disable-pip --requirement constraints.txt

lock: $(READY)
	$(BIN)/python .ci/lock.py

clean:
	rm -rf $(VENV) build dist src/*.egg-info
