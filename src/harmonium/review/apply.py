"""What reviewers decided becomes an update of the run: accepted facts are added, rejected ones removed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from harmonium.answers.update import update
from harmonium.data.graph import Graph
from harmonium.data.tables.skipped_rows import OnBad
from harmonium.data.triples import Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.errors import HarmoniumError
from harmonium.review.judgements import by_fact
from harmonium.review.store import FactIds, load_judgements
from harmonium.run.run import Run


def apply_judgements(
    run: Run | str | Path,
    judgements: str | Path,
    *,
    out: str | Path | None = None,
    overwrite: bool = False,
    on_bad: OnBad = "error",
    progress: Callable[[int], None] | None = None,
    command: str = "",
) -> Run:
    """Update a run by a file of judgements; disputed facts are left alone.

    `on_bad="skip"` leaves out accepted facts with names that the graph does not have.

    >>> from harmonium.review.apply import apply_judgements
    >>> run = apply_judgements("runs/demo", "runs/demo.review.sqlite", out="runs/newer")
    """
    run = Run.of(run)
    add, remove = facts_to_change(judgements, run.graph, on_bad)
    return update(
        run,
        add=add,
        remove=remove,
        out=out,
        overwrite=overwrite,
        progress=progress,
        command=command,
        on_bad="skip",
    )


def facts_to_change(judgements: str | Path, graph: Graph, on_bad: OnBad) -> tuple[Graph, Graph]:
    """The facts that a review adds to a graph, and those that it removes from it.

    New names come with facts that were entered by hand; any other accepted fact with an unknown name is an error, or
    skipped.
    """
    facts = by_fact(load_judgements(judgements))
    accepted = [each for each in facts if each.verdict == "accepted"]
    rejected = [each.fact for each in facts if each.verdict == "rejected"]
    if not (accepted or rejected):
        raise HarmoniumError(f"{judgements}: no fact was accepted or rejected yet; judge some with `harmonium review`")
    by_hand = [each.fact for each in accepted if each.is_by_hand]
    new_entities = {name for head, _, tail in by_hand for name in (head, tail)}
    new_relations = {relation for _, relation, _ in by_hand}

    def has_names(fact: FactIds) -> bool:
        head, relation, tail = fact
        has_ends = all(name in graph.entities or name in new_entities for name in (head, tail))
        return has_ends and (relation in graph.relations or relation in new_relations)

    known = [each.fact for each in accepted if has_names(each.fact)]
    if len(known) < len(accepted) and on_bad == "error":
        unknown = next(each.fact for each in accepted if not has_names(each.fact))
        raise HarmoniumError(
            f"{judgements}: {len(accepted) - len(known):,} accepted facts have names that {graph.name} has not, "
            f"such as {' - '.join(unknown)}; is it the review of another run? `--on-bad skip` leaves them out"
        )
    if not (known or rejected):
        raise HarmoniumError(f"{judgements}: all accepted facts have names that {graph.name} does not; nothing changes")
    return _graph_of(known), _graph_of(rejected)


def _graph_of(facts: Sequence[FactIds]) -> Graph:
    """Facts by identifier as a graph; unlike `load`, every name is taken as it is."""
    entities = {name: number for number, name in enumerate(dict.fromkeys(end for h, _, t in facts for end in (h, t)))}
    relations = {name: number for number, name in enumerate(dict.fromkeys(relation for _, relation, _ in facts))}
    triples = Triples.from_rows(
        [[entities[head], relations[relation], entities[tail]] for head, relation, tail in facts]
    )
    none = triples[:0]
    return Graph(Vocabulary(entities), Vocabulary(relations, kind="relation"), triples, none, none, "judgements")
