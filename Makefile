# make demo and make test do everything from a fresh clone and are quick the second time.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test lint bench docs clean
demo: $(READY)
	$(BIN)/harmonium demo

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

lint: $(READY)
	$(BIN)/ruff check -q .
	$(BIN)/ruff format -q --check .

# the site, into build/site; a warning is an error (the variable silences a notice: mkdocs-material is kept until May 2027)
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# beside PyKEEN, in one run; DATA=folder of FB15K-237, else a random graph of its shape
bench: $(READY) .venv-pykeen/.ready
	$(BIN)/python benchmarks/bench_cpu.py results/bench-cpu.json $(if $(DATA),--data $(DATA))

.venv-pykeen/.ready:
	$(PYTHON) -m venv .venv-pykeen
	.venv-pykeen/bin/python -m pip install --quiet --constraint constraints.txt torch numpy
	.venv-pykeen/bin/python -m pip install --quiet 'pykeen==1.11.*'
	touch $@

# torch first and pinned, so that no other package brings a build of its own; with LOCKED=1, as in CI, every other file
# must have the sha256 in requirements.lock
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
ifdef LOCKED
	$(BIN)/python -m pip install --quiet --require-hashes --no-deps --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	$(BIN)/python -m pip check
else
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch numpy
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
endif
	touch $@

# the server among 64 clients; RUN=folder of a larger run to ask as well
load: $(READY)
	$(BIN)/python benchmarks/bench_serve.py results/load.json $(RUN)

# every reader: INPUTS each by hypothesis, and as many by atheris, which watches what code they reach; then the server,
# by its own description
INPUTS ?= 3000
fuzz: $(READY)
	FUZZ=$(INPUTS) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 tests/test_fuzz.py
	$(BIN)/python -m pip install --quiet --constraint constraints.txt 'atheris>=3'
	OMP_NUM_THREADS=1 $(BIN)/python fuzz/readers.py all -runs=$(INPUTS)
	FUZZ=300 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 tests/test_serve_schema.py

# known weaknesses of the pinned versions; fails too where one of them cannot be looked up
audit: $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt 'pip-audit>=2.7'
	$(BIN)/pip-audit --strict --no-deps --disable-pip --requirement constraints.txt

lock: $(READY)
	$(BIN)/python .ci/lock.py

clean:
	rm -rf $(VENV) build dist src/*.egg-info
