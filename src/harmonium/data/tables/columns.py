"""Which columns of a table are head, relation and tail, and which are labels; an error where that is in doubt.

Column names decide: all three come from one family (subject, predicate, object), never from two. What they leave open is
decided by the contents of the columns, if those are clear. Positions decide only in a table without a header.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Literal, NamedTuple

import polars as pl

from harmonium.data.names import WHITESPACE, clean_name
from harmonium.data.triples import Slot
from harmonium.errors import HarmoniumError

if TYPE_CHECKING:
    from harmonium.data.tables.reading_options import Options

COLUMNS = tuple(slot.value for slot in Slot)
LABEL_COLUMNS = tuple(f"{column}_name" for column in COLUMNS)  # readable names beside identifiers
WEIGHT, TYPES = "weight", ("head_type", "tail_type")  # further columns, read only if the user names them

# names of the head and the tail column, and the names of a relation column that go best with them
FAMILIES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("head", "tail", ("relation", "rel", "r")),
    ("subject", "object", ("predicate", "property", "relation", "verb")),
    ("h", "t", ("r", "rel", "relation")),
    ("s", "o", ("p", "pred", "predicate")),
    ("subj", "obj", ("pred", "predicate", "rel")),
    ("sub", "obj", ("pred", "predicate", "rel")),
    ("source", "target", ("relation", "type", "link", "edge", "edge_type", "interaction")),
    ("src", "dst", ("relation", "rel", "type", "edge_type")),
    ("src", "tgt", ("relation", "rel", "type", "edge_type")),
    ("source", "destination", ("relation", "type", "link", "edge")),
    ("entity1", "entity2", ("relation", "relationship", "link")),
    ("e1", "e2", ("rel", "relation", "r")),
    ("node1", "node2", ("relation", "edge", "link", "label")),
    ("arg1", "arg2", ("rel", "relation")),
    ("item", "value", ("property", "attribute")),
    ("entity", "value", ("attribute", "property")),
    ("from", "to", ("relation", "type", "kind", "link")),
    ("start", "end", ("type", "relation")),
    ("subjekt", "objekt", ("pradikat", "praedikat", "relation", "beziehung")),  # compared without accents: Prädikat
    ("kopf", "ende", ("beziehung", "relation")),
    ("quelle", "ziel", ("beziehung", "relation", "typ")),
    ("von", "nach", ("beziehung", "relation", "typ")),
    ("element", "wert", ("eigenschaft", "attribut")),
    ("sujet", "objet", ("predicat", "relation", "propriete")),
    ("source", "cible", ("relation", "lien")),
    ("sujeto", "objeto", ("predicado", "relacion", "propiedad")),
    ("origen", "destino", ("relacion",)),
    ("soggetto", "oggetto", ("predicato", "relazione")),
    ("sujeito", "objeto", ("predicado", "relacao")),
    ("onderwerp", "object", ("relatie", "predicaat")),
    ("субъект", "объект", ("предикат", "отношение")),
    ("主语", "宾语", ("谓语",)),
    ("主体", "客体", ("谓词", "关系")),
    ("头实体", "尾实体", ("关系",)),
    ("主語", "目的語", ("述語",)),
)
FOREIGN_FAMILIES = FAMILIES[[head for head, _, _ in FAMILIES].index("subjekt") :]  # those before are English
RELATIONS = (  # names of a relation column in any family, in descending order of clarity
    "relation", "predicate", "property", "relationship", "rel", "pred", "relation_type", "relationship_type", "rel_type",
    "edge_type", "link_type", "interaction", "verb", "attribute", "edge", "link", "type", "kind", "label", "metaedge",
    *dict.fromkeys(name for *_, names in FOREIGN_FAMILIES for name in names if name not in ("relation", "typ")),
)  # fmt: skip
NAME_SUFFIXES = ("", "_id", "_entity", "_node", "_name", "_label", "_uri")  # subject, subject_id, ...
PERIOD_COLUMNS = {"from", "to", "start", "end"}  # head and tail, or the period in which a fact holds
REMARK_COLUMNS = {  # neither head, relation nor tail, unless all columns of their family are there
    "source", "sources", "reference", "references", "ref", "url", "uri", "origin", "provenance", "document", "doc", "file",
    "page", "sentence", "text", "comment", "comments", "note", "notes", "description", "evidence", "citation", "author",
    "user", "date", "year", "time", "timestamp", "since", "until", "from", "to", "start", "end", "rank", "id", "index", "nr",
    "no", "row", "number", "confidence", "weight", "score", "probability", "certainty", "trust", "count", "split", "",
}  # fmt: skip
INITIALS = ("hrt", "spo")  # of head, relation, tail and subject, predicate, object
SAMPLED_ROWS = 10_000  # whose contents are examined
MIN_ROWS = 20  # from which contents are evidence
COMPARED_ROWS = 100_000  # with the first row: if it is a fact, one of them most likely shares a name with it
SHOWN_ROWS, SHOWN_CELLS = 2, 8  # in an error message
NUMBER = r"^[-+]?(\d{1,3}(,\d{3})+|\d+)?([.,]\d+)?([eE][-+]?\d+)?\s*%?$"
DATE = r"^\d{4}([-/.]\d{1,2}([-/.]\d{1,2})?)?([T ]\d{2}:\d{2}.*)?$|^\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}$"


def title_words(titles: Sequence[object]) -> list[str]:
    """Normalised column names: without case, accents and surrounding marks (#head, ?s, :START_ID), words joined by _."""
    return [_title_word(str(title)) for title in titles]


def _title_word(title: str) -> str:
    title = re.sub(r"\([^)]*\)$", "", title.strip()).strip().strip("#?:$<>[]~@").strip()
    title = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", unicodedata.normalize("NFKD", title))
    title = "".join(character for character in title if not unicodedata.combining(character))
    return re.sub(r"_(\d)", r"\1", re.sub(r"[\s_-]+", "_", title).casefold())


class Match(NamedTuple):
    """A family whose three column names are all in a header."""

    positions: tuple[int, int, int]
    rank: tuple[bool, int, int]  # ascending: relation name of another family?, family, relation name


def _matches(words: Sequence[str]) -> list[Match]:
    """The complete families in a header, best match first."""
    matches = []
    for number, (head, tail, family_relations) in enumerate(FAMILIES):
        ends = [
            (words.index(head + first), words.index(tail + second))
            for first, second in product(NAME_SUFFIXES, NAME_SUFFIXES)
            if head + first in words and tail + second in words
        ]
        relations = [word for word in _forms((*family_relations, *RELATIONS)) if word in words]
        if len(head) == 1:  # initials go with initials: h, r, t
            relations = [word for word in relations if word in family_relations or len(word) > 1]
        for relation in relations[:1]:
            if ends:
                is_in_family = relation in _forms(family_relations)
                rank = _forms(RELATIONS).index(relation) if relation in _forms(RELATIONS) else 0
                position = words.index(relation)
                if position not in ends[0]:
                    matches.append(Match((ends[0][0], position, ends[0][1]), (not is_in_family, number, rank)))
    return sorted(matches, key=lambda match: match.rank)


def _forms(words: Sequence[str]) -> list[str]:
    return [word + form for form in NAME_SUFFIXES for word in words]


HEADS = set(_forms([head for head, _, _ in FAMILIES]))
TAILS = set(_forms([tail for _, tail, _ in FAMILIES]))
RELATION_TITLES = set(_forms(RELATIONS)) | {"r", "p"}
CLEAR = {  # names that are hardly ever those of entities or relations
    "head",
    "relation",
    "tail",
    "subject",
    "predicate",
    "object",
    "source",
    "target",
    "relationship",
    "subj",
    "obj",
}


def is_header(cells: Sequence[object]) -> bool:
    """Whether a first row has column names for head, relation and tail that belong together."""
    words = title_words(cells)
    matches = _matches(words)
    if matches:
        letters = "".join(words[position] for position in matches[0].positions)
        is_letters = len(letters) == 3
        return not is_letters or letters in INITIALS
    return len(words) == 3 and _mixed(words) is not None


def is_in_disorder(cells: Sequence[object]) -> bool:
    """Whether a row is h, r, t or s, p, o in another order: a header, or names of entities of one letter."""
    letters = "".join(title_words(cells))
    return letters not in INITIALS and any(sorted(letters) == sorted(initials) for initials in INITIALS)


def _mixed(words: Sequence[str]) -> tuple[int, int, int] | None:
    """Head, relation and tail from different families, if each name can be only one of them (head, predicate, object)."""
    sets = (HEADS, RELATION_TITLES, TAILS)
    positions = [[i for i, word in enumerate(words) if word in known] for known in sets]
    if len(words) != 3 or any(len(matches) != 1 for matches in positions):
        return None
    head, relation, tail = (matches[0] for matches in positions)
    is_long = all(len(words[position]) > 1 for position in (head, relation, tail))
    return (head, relation, tail) if len({head, relation, tail}) == 3 and is_long else None


def judge_first_row(first: Sequence[str], others: Iterable[Sequence[str]]) -> Literal["header", "fact", "doubtful"]:
    """Decide whether the first row is a header, by its words and by whether its names recur in other rows.

    Rows are (head, relation, tail). A header of unknown words shares no name with the rows below, among which relations
    repeat; a header of known words ("relation" above the relations) has some that do not recur below.
    """
    cells = dict(zip(COLUMNS, map(clean_name, first), strict=True))
    words = dict(zip(COLUMNS, title_words(first), strict=True))
    known = dict(zip(COLUMNS, (HEADS, RELATION_TITLES, TAILS), strict=True))
    titles = {column for column, word in words.items() if len(word) > 1 and word in known[column]}
    entities, relations = {cells["head"], cells["tail"]}, set[str]()
    has_entity = has_relation = repeats = (
        False  # whether a name of the first row recurs below; whether any relation does
    )
    n_others = 0
    for other in others:
        n_others += 1
        names = dict(zip(COLUMNS, map(clean_name, other), strict=True))
        titles -= {column for column in titles if names[column] == cells[column]}
        has_relation = has_relation or names["relation"] == cells["relation"]
        has_entity = has_entity or not entities.isdisjoint((names["head"], names["tail"]))
        if not titles and (has_relation or has_entity):
            return "fact"
        repeats = repeats or names["relation"] in relations
        if not repeats:
            relations.add(names["relation"])
    is_clear = any(words[column] in CLEAR for column in titles)
    if len(titles) > 1 or (repeats and not has_relation and (not has_entity or is_clear)):
        return "header"
    return "doubtful" if titles or n_others else "fact"


# Names and contents --------------------------------------------------------------------------------------------------


class Contents(NamedTuple):
    """Statistics of the first rows of a column."""

    n_rows: int
    n_distinct: int
    is_number: bool  # whether nearly all cells are numbers or dates

    @classmethod
    def of(cls, cells: pl.Series) -> Contents:
        if cells.dtype != pl.String:  # a column of a data frame
            kept = cells.head(SAMPLED_ROWS).drop_nulls()
            is_nested = cells.dtype.is_nested() or cells.dtype == pl.Object
            return cls(
                len(kept), 0 if is_nested else kept.n_unique(), cells.dtype.is_numeric() or cells.dtype.is_temporal()
            )
        texts = cells.head(SAMPLED_ROWS).drop_nulls().str.strip_chars(WHITESPACE)
        texts = texts.filter(texts != "")
        numbers = (texts.str.contains(NUMBER) & texts.str.contains(r"\d")) | texts.str.contains(DATE)
        return cls(len(texts), texts.n_unique(), len(texts) > 0 and int(numbers.sum()) > 0.9 * len(texts))


def choose_columns(
    titles: Sequence[object] | None, options: Options, location: str, sample: pl.DataFrame | None = None
) -> dict[str, int]:
    """Choose the columns of facts (column -> position): those the user named, else by names and contents, else by order.

    `titles` are the column names, None without a header. With names, the columns `split` and those of labels are chosen too.
    If in doubt, the error shows the first rows (of the `sample`) and the `--columns` to type.
    """
    width = sample.width if titles is None and sample is not None else len(titles or ())
    names = [str(title) for title in titles] if titles is not None else [str(n) for n in range(1, width + 1)]
    chosen = _chosen_by_user(names, options, location)
    if options.columns is not None:
        return chosen
    if titles is None:
        facts = _by_order(width, chosen, location, sample)
        return dict(zip(COLUMNS, facts, strict=True)) | chosen
    words = title_words(titles)
    known = HEADS | RELATION_TITLES | TAILS
    repeated = [word for word, count in Counter(words).items() if count > 1]
    is_complete = bool(_matches(words))
    named: tuple[int, int, int] | None = None
    if is_complete or not repeated:
        named = _by_title(names, words, chosen, options, location, sample)
    used = known if named is None else {words[position] for position in named}
    for word in repeated:
        if word in (*used, "split", *LABEL_COLUMNS):
            raise HarmoniumError(
                f"{location}: the header ({', '.join(names)}) names '{word}' twice; rename a column, or choose columns by "
                "number (--columns 1,2,3), or say --no-header if it is a fact"
            )
    facts = named or _by_title(names, words, chosen, options, location, sample)
    return dict(zip(COLUMNS, facts, strict=True)) | _label_columns(words, facts) | chosen


def choose_variables(names: Sequence[str], options: Options, location: str) -> dict[str, int]:
    """Choose from the variables that a query selects (column -> position): by name, else in the order of the query."""
    sample = pl.DataFrame({str(i): [] for i in range(len(names))})
    return choose_columns(names if options.columns is not None or is_header(names) else None, options, location, sample)


def choose_open_columns(titles: Sequence[object], location: str) -> dict[str, int]:
    """Choose the columns of a table of queries, in which the column of the open slot may be missing."""
    words = title_words(titles)
    sets = dict(zip(COLUMNS, (HEADS, RELATION_TITLES, TAILS), strict=True))
    matches = {column: [i for i, word in enumerate(words) if word in known] for column, known in sets.items()}
    positions = {column: indices[0] for column, indices in matches.items() if indices}
    if len(positions) < 2:
        shown = ", ".join(map(str, titles))
        raise HarmoniumError(
            f"{location}: expected columns {', '.join(COLUMNS)}, found {shown}; rename them, or choose them by name or "
            "number (--columns 1,2,3; in Python: columns=...)"
        )
    return positions


def _chosen_by_user(names: Sequence[str], options: Options, location: str) -> dict[str, int]:
    others = options.label_titles | options.type_titles
    if options.weight_column is not None:
        others[WEIGHT] = str(options.weight_column)
    wanted = others | dict(zip(COLUMNS, options.fact_titles, strict=False))
    stripped = {name.strip() for name in names}
    by_number = all(title.isdecimal() for title in wanted.values()) and not set(wanted.values()) <= stripped
    chosen = {column: _position(names, title, location, by_number) for column, title in wanted.items()}
    if options.columns is not None and len({chosen[column] for column in COLUMNS}) < len(COLUMNS):
        shown = ", ".join(options.fact_titles)
        raise HarmoniumError(f"{location}: head, relation and tail must be three different columns; given: {shown}")
    return chosen


def _by_order(width: int, chosen: dict[str, int], location: str, sample: pl.DataFrame | None) -> tuple[int, int, int]:
    """Head, relation and tail of a table without a header: its three columns, unless one other than the second repeats."""
    rest = [position for position in range(width) if position not in chosen.values()]
    if sample is not None and len(rest) > 3:  # rows that end with a separator have an empty last column
        rest = [position for position in rest if position < 3 or Contents.of(sample.to_series(position)).n_rows]
    if len(rest) != 3:
        reason = f"found {width} column{'s' * (width != 1)}, expected 3: head, relation, tail"
        raise _doubt(location, reason, [str(n) for n in range(1, width + 1)], sample, rest)
    head, relation, tail = rest
    if sample is not None and len(sample) >= MIN_ROWS:
        contents = [Contents.of(sample.to_series(position)) for position in rest]
        fewest = min(contents[0].n_distinct, contents[2].n_distinct)
        numbers = [str(n) for n in range(1, width + 1)]
        if (order := _order_of_shared_names(sample, rest)) != rest:
            reason = "the second column, which would be the relation, has names of the entities beside it"
            raise _doubt(location, reason, numbers, sample, order)
        if contents[1].n_distinct > contents[1].n_rows / 2 and 1 < fewest <= contents[1].n_rows / 5:
            reason = "the second column, which would be the relation, hardly ever repeats, but another one does"
            is_third = fewest == contents[2].n_distinct
            raise _doubt(
                location, reason, numbers, sample, (head, tail, relation) if is_third else (relation, head, tail)
            )
    return head, relation, tail


def _order_of_shared_names(sample: pl.DataFrame, columns: Sequence[int]) -> Sequence[int]:
    """Reorder three columns as head, relation, tail: two columns that share names are entities.

    If the second shares names with a neighbour, and the first and third share none, the remaining one is the relation.
    """
    first, second, third = (set(sample.to_series(position).drop_nulls().to_list()) for position in columns)
    for other, rest, order in ((first, third, (0, 2, 1)), (third, first, (1, 0, 2))):
        shared = len(second & other)
        is_few = len(rest) * 2 < len(second)
        if is_few and not first & third and not second & rest and 5 * shared > min(len(second), len(other)):
            return [columns[i] for i in order]
    return columns


def _by_title(
    names: Sequence[str],
    words: Sequence[str],
    chosen: Mapping[str, int],
    options: Options,
    location: str,
    sample: pl.DataFrame | None,
) -> tuple[int, int, int]:
    """Head, relation and tail of a table with column names."""
    taken = set(chosen.values())
    matches = [match for match in _matches(words) if taken.isdisjoint(match.positions)]
    contents = [Contents.of(sample.to_series(i)) if sample is not None else None for i in range(len(words))]
    others = [
        i for i, word in enumerate(words)
        if i not in taken and not _is_remark(word) and word not in RELATION_TITLES and not _is_number(contents[i])
    ]  # fmt: skip
    matches = [match for match in matches if not _is_period(match, words, contents, others)]
    if matches:
        best = [match for match in matches if match.rank[0] == matches[0].rank[0]]
        rivals = [match for match in best if not set(match.positions) & set(best[0].positions)]
        if rivals:
            families = " and ".join(_shown(names, match.positions) for match in (best[0], rivals[0]))
            reason = f"two families of column names: {families}"
            raise _doubt(location, reason, names, sample, best[0].positions)
        _refuse_constant_type(matches[0].positions, names, words, contents, location, sample)
        return matches[0].positions
    usable = [i for i in range(len(words)) if i not in taken and words[i] != "split" and words[i] not in LABEL_COLUMNS]
    mixed = _mixed([words[i] for i in usable]) if len(usable) == 3 else None
    if mixed is not None:
        head, relation, tail = (usable[i] for i in mixed)
        return head, relation, tail
    if len(usable) == 3 and (options.header or chosen):  # the user said that this is a header
        head, relation, tail = usable
        fits = (words[head] in HEADS, words[relation] in RELATION_TITLES, words[tail] in TAILS)
        if not any(
            words[i] in HEADS | RELATION_TITLES | TAILS
            for i, does_fit in zip(usable, fits, strict=True)
            if not does_fit
        ):
            return head, relation, tail
    return _by_elimination(names, words, usable, contents, location, sample)


def _refuse_constant_type(
    positions: tuple[int, int, int],
    names: Sequence[str],
    words: Sequence[str],
    contents: Sequence[Contents | None],
    location: str,
    sample: pl.DataFrame | None,
) -> None:
    """Refuse a constant column `type` if another column may be the relation (in Gephi, Type is always Directed)."""
    head, relation, tail = positions
    types = contents[relation]
    if (
        words[relation] not in ("type", "kind", "typ")
        or types is None
        or types.n_rows < MIN_ROWS
        or types.n_distinct > 1
    ):
        return
    for i, word in enumerate(words):
        other = contents[i]
        if i != relation and word in RELATION_TITLES and other and 1 < other.n_distinct <= other.n_rows / 2:
            reason = f"the column '{names[relation]}' has one value only, '{names[i]}' has {other.n_distinct:,}"
            raise _doubt(location, reason, names, sample, (head, i, tail))


def _by_elimination(
    names: Sequence[str],
    words: Sequence[str],
    usable: Sequence[int],
    contents: Sequence[Contents | None],
    location: str,
    sample: pl.DataFrame | None,
) -> tuple[int, int, int]:
    """If some columns are known by name, the remaining columns are the others, provided that their number fits."""
    relations = [i for i in usable if words[i] in _forms(RELATIONS) and not _is_number(contents[i])]
    relation = min(relations, key=lambda i: _forms(RELATIONS).index(words[i])) if relations else None
    free = [i for i in usable if i != relation and words[i] not in RELATION_TITLES and not _is_remark(words[i])]
    heads = [i for i in free if words[i] in HEADS]
    tails = [i for i in free if words[i] in TAILS]
    free = [i for i in free if words[i] not in HEADS | TAILS]
    if relation is not None and len(heads) <= 1 and len(tails) <= 1:
        if heads and tails:  # of two families
            reason = f"column names of two families: {names[heads[0]]} and {names[tails[0]]}"
            raise _doubt(location, reason, names, sample, (heads[0], relation, tails[0]))
        unknown = [i for i in free if heads or not _is_number(contents[i])]  # numbers and dates cannot be heads
        if heads and len(unknown) == 1:
            return heads[0], relation, unknown[0]
        if tails and len(unknown) == 1:
            return unknown[0], relation, tails[0]
        if not heads and not tails and len(unknown) == 2:
            return unknown[0], relation, unknown[1]
        if not heads and not tails and len(unknown) == 1 and len(free) == 2:  # the tail may be a number
            head, tail = unknown[0], next(i for i in free if i != unknown[0])
            return head, relation, tail
    missing = "relation" if relation is None and (heads or tails) else "head, relation and tail"
    reason = f"the header ({', '.join(names[:SHOWN_CELLS])}{', ...' * (len(names) > SHOWN_CELLS)}) names no {missing}"
    if relation is not None:
        reason = f"{len(names)} columns ({', '.join(names[:SHOWN_CELLS])}), and it is not clear which are head and tail"
    guess = (*heads, *free) if relation is None else (*heads[:1], *free, *tails[:1])
    if relation is None:
        relation = _most_repeated(guess, contents)
        guess = tuple(i for i in guess if i != relation)
    if relation is not None and len(guess) >= 2:
        guess = (guess[0], relation, *guess[1:])
    raise _doubt(location, reason, names, sample, guess)


def _most_repeated(columns: Sequence[int], contents: Sequence[Contents | None]) -> int | None:
    """The column whose values repeat by far the most: the relation that an error suggests where column names give none."""
    counts = [(each.n_distinct, i) for i in columns if (each := contents[i]) is not None and not each.is_number]
    (fewest, column), *others = sorted(counts) or [(0, -1)]
    return column if others and others[0][0] >= 2 * fewest > 0 else None


def _is_number(contents: Contents | None) -> bool:
    return contents is not None and contents.is_number


def _is_remark(word: str) -> bool:
    return word in REMARK_COLUMNS or word.startswith("unnamed:")


def _is_period(match: Match, words: Sequence[str], contents: Sequence[Contents | None], others: Sequence[int]) -> bool:
    """Whether "from" and "to" are dates of a fact whose head and tail are two other columns."""
    head, _, tail = match.positions
    return (
        words[head] in PERIOD_COLUMNS and _is_number(contents[head]) and _is_number(contents[tail]) and len(others) >= 2
    )  # fmt: skip


def _doubt(
    location: str, reason: str, names: Sequence[str], sample: pl.DataFrame | None, guess: Sequence[int] = ()
) -> HarmoniumError:
    """The error for columns that cannot be told apart: it shows the first rows and the option to type."""
    rows = [] if sample is None else sample.head(SHOWN_ROWS).rows()
    shown = "; ".join(", ".join(str(cell) if cell is not None else "" for cell in row[:SHOWN_CELLS]) for row in rows)
    suggested = list(dict.fromkeys([*guess, *range(len(names))]))[:3]
    columns = ",".join(names[i] if "," not in names[i] else str(i + 1) for i in suggested)
    columns = columns if len(suggested) == 3 and all(columns.split(",")) else "1,2,3"
    more = f"; its first rows: {shown}" if shown else ""
    return HarmoniumError(
        f'{location}: {reason}{more}. Say which columns are head, relation and tail, such as --columns "{columns}" '
        "(by name or number; in Python: columns=...), or give the --delimiter, --header or --no-header. Each row is one "
        "fact: a table with a column for each relation must be turned into such rows"
    )


def _shown(names: Sequence[str], positions: Sequence[int]) -> str:
    return ", ".join(names[position] for position in positions)


def _label_columns(words: Sequence[str], facts: Sequence[int]) -> dict[str, int]:
    """The columns of the split and of labels in a header; columns of facts are left out."""
    columns = {"split": words.index("split")} if "split" in words else {}
    for label_column, fact in zip(LABEL_COLUMNS, facts, strict=True):
        base = re.sub(rf"({'|'.join(NAME_SUFFIXES[1:])})$", "", words[fact])
        known = [word for word in (label_column, f"{base}_name", f"{base}_label") if word in words]
        positions = [position for position in map(words.index, known) if position not in facts]
        if positions:
            columns[label_column] = positions[0]
    return columns


def _position(titles: Sequence[object], wanted: str, location: str, by_number: bool = False) -> int:
    names = [str(title).strip() for title in titles]
    spellings = ((wanted, names), (wanted.casefold(), [name.casefold() for name in names]))
    for spelling, known in () if by_number else spellings:
        if known.count(spelling) > 1:
            raise HarmoniumError(
                f"{location}: {known.count(spelling)} columns are named '{wanted}' ({', '.join(names)}); "
                "choose them by number, from 1"
            )
        if spelling in known:
            return known.index(spelling)
    if wanted.isdecimal() and 1 <= int(wanted) <= len(names):
        return int(wanted) - 1
    raise HarmoniumError(f"{location}: no column '{wanted}'; there are {', '.join(names)} (numbered from 1)")
