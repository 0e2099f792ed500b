"""What a training costs on paper: bytes, operations and network from its sizes, and the seconds that machines take for them.

A step has some fixed cost, multiplies, moves memory, and, with several processes, sends rows to and fro:

    seconds = fixed + operations / operations per second + bytes / bytes per second + sent / network

The constants of `MACHINES` are fitted to measured steps (benchmarks/fit_cost.py, docs/scale.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from harmonium.config import Config
from harmonium.objective import groups

NUMBER = 4  # bytes of a float32, in which everything is computed
TRIPLE, PLACE = 24, 8  # bytes of a triple (three int64), and of its place in the order of an epoch
STATES = {"adam": 2, "adagrad": 1, "row-adagrad": 0}  # numbers remembered for each number; row-adagrad: one for a row
PASSES, LAID_OUT = 2, 6  # over the vectors scored: for scores and gradients; low rank also lays them side by side


@dataclass(frozen=True)
class Machine:
    """What one process has: seconds of a step whatever its size, operations and bytes a second, memory, network."""

    name: str
    fixed: float
    operations: float
    bytes: float
    memory: float
    network: float  # bytes a second between processes
    multiplies: float  # operations a second of large products, as a full W makes
    link: float = math.inf  # bytes a second between the memory of the host and what computes; without end if the same


MACHINES = {  # network and memory are as sold; the rest is measured
    "cpu": Machine("2 CPU cores", 1.3e-2, 1.9e10, 1.1e10, 16e9, 1.25e9, 8.5e11),
    "h200": Machine("H200", 4.1e-3, 1.1e13, 8.8e11, 150e9, 4e11, 3.4e14, 9.5e9),
}


@dataclass(frozen=True)
class Work:
    """The sizes that cost depends on. Rank 0 is a plain model, None a full W."""

    entities: int
    triples: int
    relations: int = 1000
    dim: int = 256
    rank: int | None = 16
    batch: int = 4096
    negatives: int = 128
    shared: int = 1
    epochs: int = 10
    optimizer: str = "adam"
    dtype: str = "float32"
    table: str = "device"
    processes: int = 1

    @classmethod
    def of(cls, config: Config, entities: int, relations: int, triples: int, processes: int = 1) -> Work:
        model, train = config.model, config.train
        return cls(
            entities, triples, relations, model.entity_dim, model.rank if model.harmony else 0, train.batch_size,
            train.negatives, train.shared, train.epochs, train.optimizer, model.entity_dtype, train.table, processes,
        )  # fmt: skip

    @property
    def steps(self) -> int:
        return self.epochs * math.ceil(self.triples / self.batch)

    @property
    def scores(self) -> float:
        """Computed in a step by a process: the truth and its corruptions, on both sides."""
        return 2 * self.batch / self.processes * (1 + self.negatives)

    @property
    def drawn(self) -> int:
        """Entities in a step of all processes, some of them more than once."""
        return 2 * (self.batch + self.negatives * groups(self.batch, self.shared))

    @property
    def rows(self) -> float:
        """Distinct entities that a step of a process uses, where corruptions are drawn from all alike."""
        return self.entities * -math.expm1(-self.drawn / self.processes / self.entities)

    @property
    def moved(self) -> float:
        """Rows of which a process moves: those used, or all it holds where they are few."""
        held = self.entities / self.processes
        plain = (self.optimizer != "row-adagrad", self.dtype == "float32", self.table == "device")
        dense = self.entities <= 2 * self.drawn and all(plain)
        return held if dense else self.rows

    @property
    def row(self) -> int:
        """Bytes of an entity's vector in the table."""
        return self.dim * (2 if self.dtype == "bfloat16" else NUMBER)

    @property
    def state(self) -> int:
        """Bytes that the optimiser remembers of an entity."""
        return NUMBER * (STATES[self.optimizer] * self.dim or 1)

    @property
    def everywhere(self) -> float:
        """Numbers that every process holds: relations, W and b."""
        form = 0 if self.rank == 0 else self.dim * (self.dim if self.rank is None else self.rank) + self.dim
        return self.relations * self.dim + form

    @property
    def operations(self) -> float:
        """In a step: two for each number of a product, and twice as many again for its gradients."""
        return 6 * self.scores * self.dim * (1 + (self.rank or 0))

    @property
    def multiplies(self) -> float:
        """The same for a full W, in products large enough to run at full speed."""
        return 6 * self.scores * self.dim**2 if self.rank is None else 0.0

    @property
    def bytes(self) -> float:
        """Through memory in a step: the vectors scored, and then the rows moved."""
        read = self.scores if self.shared == 1 else self.rows
        scored = NUMBER * self.dim * read * (LAID_OUT if self.rank else PASSES)
        return scored + self.moved * (2 * self.row + 2 * self.state + 2 * NUMBER * self.dim)

    @property
    def sent(self) -> float:
        """Between processes in a step, by each: ids and rows that others hold, their gradients, and what is everywhere."""
        others = (self.processes - 1) / self.processes
        return others * (self.rows * (8 + self.row + NUMBER * self.dim) + 2 * NUMBER * self.everywhere)

    @property
    def carried(self) -> float:
        """Between the memory of the host, where the table lies, and what computes: rows and their gradients."""
        return self.rows * (self.row + NUMBER * self.dim) if self.table == "host" else 0.0

    @property
    def tables(self) -> dict[str, float]:
        """Bytes of a process with a row for each entity, by what they hold."""
        held = self.entities / self.processes
        return {"entity table": held * self.row, "optimiser": held * self.state, "best model, kept": held * self.row}

    @property
    def memory(self) -> dict[str, float]:
        """Bytes of a process, by what they hold. Triples lie in each."""
        return self.tables | {
            "triples": self.triples * TRIPLE,
            "order of an epoch": self.triples * PLACE,
            "a step": 4 * NUMBER * self.dim * max(self.rows, self.scores if self.shared == 1 else 0),
        }


@dataclass(frozen=True)
class Cost:
    """Seconds of a step by what takes them, and what follows."""

    work: Work
    machine: Machine
    step: dict[str, float]

    @property
    def step_seconds(self) -> float:
        return sum(self.step.values())

    @property
    def hours(self) -> float:
        return self.work.steps * self.step_seconds / 3600

    @property
    def bottleneck(self) -> str:
        return max(self.step, key=self.step.get)

    @property
    def memory(self) -> float:
        """Bytes where it computes: a CPU uses the triples as they lie on the disk, a GPU perhaps the tables on its host."""
        elsewhere = self.work.tables if self.work.table == "host" else {}
        if self.machine.link == math.inf:
            elsewhere = {"triples"}
        return sum(size for name, size in self.work.memory.items() if name not in elsewhere)

    @property
    def fits(self) -> bool:
        return self.memory <= self.machine.memory


def cost(work: Work, machine: Machine) -> Cost:
    """The step of one process, in seconds by what takes them."""
    step = {
        "fixed": machine.fixed,
        "operations": work.operations / machine.operations + work.multiplies / machine.multiplies,
        "memory": work.bytes / machine.bytes,
        "network": work.sent / machine.network,
        "host": work.carried / machine.link,
    }
    return Cost(work, machine, step)


def enough(work: Work, machine: Machine, most: int = 1 << 14) -> Cost | None:
    """With as many processes, doubled until it fits, as are needed, or None: what lies in each may be too large."""
    while work.processes <= most:
        found = cost(work, machine)
        if found.fits:
            return found
        work = replace(work, processes=2 * work.processes)
    return None
