# make demo and make test do everything from a fresh clone and are quick the second time.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test lint bench clean
demo: $(READY)
	$(BIN)/harmonium demo

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

lint: $(READY)
	$(BIN)/ruff check -q .
	$(BIN)/ruff format -q --check .

# beside PyKEEN, in one run; DATA=folder of FB15K-237, else a random graph of its shape
bench: $(READY) .venv-pykeen/.ready
	$(BIN)/python benchmarks/bench_cpu.py results/bench-cpu.json $(if $(DATA),--data $(DATA))

.venv-pykeen/.ready:
	$(PYTHON) -m venv .venv-pykeen
	.venv-pykeen/bin/python -m pip install --quiet --constraint constraints.txt torch numpy
	.venv-pykeen/bin/python -m pip install --quiet 'pykeen==1.11.*'
	touch $@

# torch first and pinned, so that no other package brings a build of its own
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch numpy
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist src/*.egg-info
