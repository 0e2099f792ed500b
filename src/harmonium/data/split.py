"""A random split of facts that leaks nothing between train, valid and test."""

import math
from dataclasses import replace

import torch
from torch import Tensor

from harmonium.data.graph import SPLITS, Graph, Note
from harmonium.data.growing_column import ROWS_PER_CHUNK, select_triples
from harmonium.data.index import hash_ids, is_member
from harmonium.data.triples import Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.errors import HarmoniumError

MAX_EXACT_FACTS = 1000  # up to which the shares are kept exactly; in larger graphs chance hardly changes them


def split(graph: Graph, *, seed: int = 0, valid: float = 0.05, test: float = 0.05) -> Graph:
    """Split the facts of a graph at random into train, valid and test.

    All facts over the same two entities stay together (so neither direction of a symmetric or inverse fact leaks),
    and a fact moves back to train when one of its entities or its relation would otherwise not be trained.

    The split of a fact is a function of the names of its entities and the seed: adding, removing or reordering facts leaves
    the others where they are, except those that must now move back to train, or no longer must. Where facts are few (up
    to `MAX_EXACT_FACTS`), the shares are kept as nearly as pairs allow, and a change moves one or two more.
    """
    if not (valid >= 0 and test >= 0 and valid + test < 1):
        raise HarmoniumError(f"valid and test are fractions that leave room for train, not {valid} and {test}")
    facts = graph.facts()
    assigned = torch.empty(len(facts), dtype=torch.uint8)  # index into SPLITS
    chunks = list(zip(facts.chunks(ROWS_PER_CHUNK), assigned.split(ROWS_PER_CHUNK), strict=False))
    hashes = _hash_names(graph.entities)
    low, high = test, 1 - valid  # test gets the lowest draws and valid the highest
    if 0 < len(facts) <= MAX_EXACT_FACTS:
        ascending = _draw(hashes[facts.head], hashes[facts.tail], seed).sort().values
        low = float(ascending[round(test * len(facts))])
        high = math.nextafter(float(ascending[-1 - round(valid * len(facts))]), 1)
    for triples, part in chunks:
        draw = _draw(hashes[triples.head], hashes[triples.tail], seed)
        part[:] = torch.where(draw < low, 2, (draw >= high).byte())
    _return_untrained(graph.n_entities, graph.n_relations, chunks)
    parts = [select_triples(facts, assigned == number) for number in range(len(SPLITS))]
    text = f"split by seed {seed}: {valid:g} valid, {test:g} test requested; facts over the same pair kept together"
    return replace(graph, train=parts[0], valid=parts[1], test=parts[2], notes=(*graph.notes, Note(text, "split")))


def _hash_names(entities: Vocabulary) -> Tensor:
    """(n_entities,) int64: a pseudo-random number for each name."""
    hashes, order = entities.ids.hash_index
    numbers = torch.empty(len(entities), dtype=torch.int64)
    numbers[torch.from_numpy(order)] = torch.from_numpy(hashes.view("int64"))
    return hash_ids(numbers)


def _draw(heads: Tensor, tails: Tensor, seed: int) -> Tensor:
    """(n,) uniform in [0, 1): a hash of the two entities in either order and the seed, so that facts over a pair agree."""
    low, high = torch.minimum(heads, tails), torch.maximum(heads, tails)
    return hash_ids(hash_ids(hash_ids(low) + high) + seed).double() / 2**63


def hold_out(graph: Graph, share: float, seed: int) -> tuple[Triples, Triples]:
    """Split the training facts at random into the facts to keep and a share to hold out.

    Facts over the same two entities stay together if they do in the validation split, so that both held-out sets are
    equally difficult. Every entity and relation keeps a training fact.
    """
    facts = graph.train
    keeps_pairs = not is_member(_pairs(graph.valid, graph.n_entities), _pairs(facts, graph.n_entities).unique()).any()
    if keeps_pairs:
        draw = _draw(facts.head, facts.tail, seed)
    else:
        draw = torch.rand(len(facts), dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    held_out = (draw < share).byte()
    _return_untrained(graph.n_entities, graph.n_relations, [(facts, held_out)])
    return facts[held_out == 0], facts[held_out == 1]


def _return_untrained(n_entities: int, n_relations: int, chunks: list[tuple[Triples, Tensor]]) -> None:
    """Move facts back to train, with all facts over their pair, until every entity and relation occurs there."""
    while True:
        has_entity = torch.zeros(n_entities, dtype=torch.bool)
        has_relation = torch.zeros(n_relations, dtype=torch.bool)
        for triples, assigned in chunks:
            train = triples[assigned == 0]
            has_entity[train.head] = True
            has_relation[train.relation] = True
            has_entity[train.tail] = True
        untrained = []
        for triples, assigned in chunks:
            known = has_entity[triples.head] & has_relation[triples.relation] & has_entity[triples.tail]
            untrained.append(_pairs(triples[(assigned > 0) & ~known], n_entities))
        pairs = torch.cat(untrained).unique() if untrained else torch.empty(0)
        if not len(pairs):
            return
        for triples, assigned in chunks:
            assigned[is_member(_pairs(triples, n_entities), pairs)] = 0


def _pairs(facts: Triples, n_entities: int) -> Tensor:
    """(n,): the two entities of each fact, in either order, encoded as one number."""
    return torch.minimum(facts.head, facts.tail) * n_entities + torch.maximum(facts.head, facts.tail)
