"""Maps in the plane: of all entities, and of the entities of a guise."""

import torch
from torch import Tensor

from harmonium.analysis.neighbours import Guise
from harmonium.data.graph import Graph
from harmonium.server.name_search import NameIndex
from harmonium.server.results import EntityMap, GuisePoint, MapPoint

COLOURED_ROLES = 7
MOST_GUISE_POINTS = 400


def principal_plane(vectors: Tensor) -> tuple[Tensor, float]:
    """(n, 2): coordinates along the two principal axes, and their share of the variance; by subspace iteration."""
    centred = (vectors - vectors.mean(0)).double()
    axes = torch.randn(centred.shape[1], 8, dtype=centred.dtype, generator=torch.Generator().manual_seed(0))
    for _ in range(12):
        axes = torch.linalg.qr(centred.T @ (centred @ axes))[0]
    projected = centred @ axes
    variances, rotation = torch.linalg.eigh(projected.T @ projected)
    plane = torch.nn.functional.pad((projected @ rotation).flip(-1)[:, :2], (0, 2))[:, :2]
    return plane, (variances[-2:].sum() / centred.square().sum().clamp(min=1e-300)).item()


def rounded(plane: Tensor) -> list[tuple[float, float]]:
    """Coordinates with four digits, as a picture needs no more."""
    return [(float(f"{x:.4g}"), float(f"{y:.4g}")) for x, y in plane.tolist()]


def main_roles(graph: Graph) -> Tensor:
    """(n_entities,): the relation in which each entity is most often the head, or n_relations + that as a tail.

    2 n_relations for entities without facts.
    """
    facts, n_roles = graph.facts(), 2 * graph.n_relations
    entity = torch.cat([facts.head, facts.tail])
    role = torch.cat([facts.relation, facts.relation + graph.n_relations])
    pairs, counts = torch.unique(entity * n_roles + role, return_counts=True)
    pairs = pairs[counts.argsort(stable=True)]
    pairs = pairs[(pairs // n_roles).argsort(stable=True)]  # by entity, the most frequent role last
    owner = pairs // n_roles
    is_last = owner.diff(append=owner.new_tensor([-1])) != 0
    roles = torch.full((graph.n_entities,), n_roles)
    roles[owner[is_last]] = pairs[is_last] % n_roles
    return roles


def entity_map(graph: Graph, names: NameIndex, vectors: Tensor) -> EntityMap:
    """Every entity, the most connected first, with its main role as colour."""
    plane, share = principal_plane(vectors)
    n, roles = graph.n_relations, main_roles(graph)
    common = roles[roles < 2 * n].bincount(minlength=2 * n).topk(min(COLOURED_ROLES, 2 * n))
    shown = common.indices[common.values > 0].tolist()
    titles = [f"{graph.relations.name(role % n)} ({'tail' if role >= n else 'head'})" for role in shown]
    colour = {role: position for position, role in enumerate(shown)}
    order = torch.tensor(names.by_count)
    points = []
    for entity, role, (x, y) in zip(order.tolist(), roles[order].tolist(), rounded(plane[order]), strict=True):
        named = names.named(entity)
        points.append(MapPoint(named.id, named.name, x, y, colour.get(role, len(shown))))
    return EntityMap([*titles, "other"], share, points, [])


def links_between(graph: Graph, entities: Tensor, limit: int) -> list[tuple[int, int]]:
    """Pairs of positions in `entities` between which there is a fact; of more than `limit` an even sample."""
    position = torch.full((graph.n_entities,), -1).index_put_((entities,), torch.arange(len(entities)))
    facts = graph.facts()
    ends = torch.stack([position[facts.head], position[facts.tail]], dim=1).sort(dim=1).values
    pairs = ends[(ends[:, 0] >= 0) & (ends[:, 0] != ends[:, 1])].unique(dim=0)
    sample = torch.linspace(0, len(pairs) - 1, min(limit, len(pairs))).long()
    return [(first, second) for first, second in pairs[sample].tolist()]


def guise_points(guise: Guise, names: NameIndex, composed: Tensor, tokens: Tensor) -> list[GuisePoint]:
    """The nearest entities of a guise in two planes; that of tokens is rotated to match that of composed vectors."""
    near = (tokens - tokens[guise.is_entity]).norm(dim=-1).argsort()[:MOST_GUISE_POINTS].sort().values
    plane, _ = principal_plane(composed[near])
    token_plane, _ = principal_plane(tokens[near])
    left, _, right = torch.linalg.svd(token_plane.T @ plane)
    token_points = rounded(token_plane @ (left @ right))
    points = []
    for position, point, token in zip(near.tolist(), rounded(plane), token_points, strict=True):
        named = names.named(int(guise.candidates[position]))
        true, selected = bool(guise.is_fact[position]), bool(guise.is_entity[position])
        points.append(GuisePoint(named.id, named.name, true, selected, point, token))
    return points
