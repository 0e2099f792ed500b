"""Which columns of a table are head, relation and tail, and which are labels; an error where that is in doubt.

Titles decide: the three columns come from one family of names (subject, predicate, object), never from two. What titles
leave open is decided by what the columns hold, if that is clear. Positions decide only where there are no titles.
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
WEIGHT, TYPES = "weight", ("head_type", "tail_type")  # further columns, where the user chooses them

FAMILIES: tuple[
    tuple[str, str, tuple[str, ...]], ...
] = (  # titles of head and tail, and the titles of a relation that go with them best
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
    ("subjekt", "objekt", ("pradikat", "praedikat", "relation", "beziehung")),  # marks of letters are dropped: Prädikat
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
LANGUAGES = [head for head, _, _ in FAMILIES].index("subjekt")  # where titles that are not English begin
RELATIONS = (  # titles of a relation in any family, the clearest first
    "relation", "predicate", "property", "relationship", "rel", "pred", "relation_type", "relationship_type", "rel_type",
    "edge_type", "link_type", "interaction", "verb", "attribute", "edge", "link", "type", "kind", "label", "metaedge",
    *dict.fromkeys(word for _, _, own in FAMILIES[LANGUAGES:] for word in own if word not in ("relation", "typ")),
)  # fmt: skip
FORMS = ("", "_id", "_entity", "_node", "_name", "_label", "_uri")  # subject, subject_id, ...
TIMES = {"from", "to", "start", "end"}  # titles that may be those of dates
REMARKS = {  # titles of columns that are neither head, relation nor tail, unless their family is complete
    "source", "sources", "reference", "references", "ref", "url", "uri", "origin", "provenance", "document", "doc", "file",
    "page", "sentence", "text", "comment", "comments", "note", "notes", "description", "evidence", "citation", "author",
    "user", "date", "year", "time", "timestamp", "since", "until", "from", "to", "start", "end", "rank", "id", "index", "nr",
    "no", "row", "number", "confidence", "weight", "score", "probability", "certainty", "trust", "count", "split", "",
}  # fmt: skip
INITIALS = ("hrt", "spo")
SAMPLE = 10_000  # rows that are looked at
ENOUGH = 20  # rows, below which contents say nothing
COMPARED_ROWS = 100_000  # with a first line, which is rarely so far from the next line that shares a name
SHOWN_ROWS, SHOWN_CELLS = 2, 8  # in an error
NUMBER = r"^[-+]?(\d{1,3}(,\d{3})+|\d+)?([.,]\d+)?([eE][-+]?\d+)?\s*%?$"
DATE = r"^\d{4}([-/.]\d{1,2}([-/.]\d{1,2})?)?([T ]\d{2}:\d{2}.*)?$|^\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}$"


def title_words(titles: Sequence[object]) -> list[str]:
    """Titles as they are compared: without case, accents, marks around them (#head, ?s, :START_ID) and kinds of gaps."""
    return [_title_word(str(title)) for title in titles]


def _title_word(title: str) -> str:
    title = re.sub(r"\([^)]*\)$", "", title.strip()).strip().strip("#?:$<>[]~@").strip()
    title = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", unicodedata.normalize("NFKD", title))
    title = "".join(character for character in title if not unicodedata.combining(character))
    return re.sub(r"_(\d)", r"\1", re.sub(r"[\s_-]+", "_", title).casefold())


class Match(NamedTuple):
    """A complete family of titles in a header."""

    positions: tuple[int, int, int]
    strength: tuple[bool, int, int]  # the lower, the better: not its own title of a relation, which titles


def _matches(words: Sequence[str]) -> list[Match]:
    """The complete families in a header, the best first."""
    matches = []
    for number, (head, tail, own) in enumerate(FAMILIES):
        ends = [
            (words.index(head + first), words.index(tail + second))
            for first, second in product(FORMS, FORMS)
            if head + first in words and tail + second in words
        ]
        relations = [word for word in _forms((*own, *RELATIONS)) if word in words]
        if len(head) == 1:  # initials go with initials: h, r, t
            relations = [word for word in relations if word in own or len(word) > 1]
        for relation in relations[:1]:
            if ends:
                is_own = relation in _forms(own)
                rank = _forms(RELATIONS).index(relation) if relation in _forms(RELATIONS) else 0
                position = words.index(relation)
                if position not in ends[0]:
                    matches.append(Match((ends[0][0], position, ends[0][1]), (not is_own, number, rank)))
    return sorted(matches, key=lambda match: match.strength)


def _forms(words: Sequence[str]) -> list[str]:
    return [word + form for form in FORMS for word in words]


HEADS = set(_forms([head for head, _, _ in FAMILIES]))
TAILS = set(_forms([tail for _, tail, _ in FAMILIES]))
RELATION_TITLES = set(_forms(RELATIONS)) | {"r", "p"}
CLEAR = {
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
    """Whether a first line has titles of head, relation and tail that belong together."""
    words = title_words(cells)
    matches = _matches(words)
    if matches:
        letters = "".join(words[position] for position in matches[0].positions)
        is_letters = len(letters) == 3
        return not is_letters or letters in INITIALS
    return len(words) == 3 and _mixed(words) is not None


def is_in_disorder(cells: Sequence[object]) -> bool:
    """Whether these are the initials h, r, t or s, p, o in another order, which may be names of one letter."""
    letters = "".join(title_words(cells))
    return letters not in INITIALS and any(sorted(letters) == sorted(initials) for initials in INITIALS)


def _mixed(words: Sequence[str]) -> tuple[int, int, int] | None:
    """Three titles of different families, if each can be only one of head, relation and tail (head, predicate, object)."""
    sets = (HEADS, RELATION_TITLES, TAILS)
    positions = [[i for i, word in enumerate(words) if word in titles] for titles in sets]
    if len(words) != 3 or any(len(found) != 1 for found in positions):
        return None
    head, relation, tail = (found[0] for found in positions)
    is_long = all(len(words[position]) > 1 for position in (head, relation, tail))
    return (head, relation, tail) if len({head, relation, tail}) == 3 and is_long else None


def judge_first_row(first: Sequence[str], others: Iterable[Sequence[str]]) -> Literal["header", "fact", "doubtful"]:
    """What the first row is, by its words and by whether other rows have its names; rows are head, relation and tail.

    A header in other words shares no name with any other row, while relations repeat among these; or words of it are
    titles ("relation" above the relations) that do not recur below.
    """
    cells = dict(zip(COLUMNS, map(clean_name, first), strict=True))
    words = dict(zip(COLUMNS, title_words(first), strict=True))
    known = dict(zip(COLUMNS, (HEADS, RELATION_TITLES, TAILS), strict=True))
    titles = {column for column, word in words.items() if len(word) > 1 and word in known[column]}
    entities, relations = {cells["head"], cells["tail"]}, set[str]()
    has_entity = has_relation = repeats = False  # whether other rows have an entity or the relation of the first
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


# Titles and contents -------------------------------------------------------------------------------------------------


class Contents(NamedTuple):
    """What a column holds, as far as its first rows tell."""

    n_rows: int
    n_distinct: int
    is_number: bool  # numbers or dates, nearly all

    @classmethod
    def of(cls, cells: pl.Series) -> Contents:
        if cells.dtype != pl.String:  # of a frame
            kept = cells.head(SAMPLE).drop_nulls()
            is_nested = cells.dtype.is_nested() or cells.dtype == pl.Object
            return cls(
                len(kept), 0 if is_nested else kept.n_unique(), cells.dtype.is_numeric() or cells.dtype.is_temporal()
            )
        texts = cells.head(SAMPLE).drop_nulls().str.strip_chars(WHITESPACE)
        texts = texts.filter(texts != "")
        numbers = (texts.str.contains(NUMBER) & texts.str.contains(r"\d")) | texts.str.contains(DATE)
        return cls(len(texts), texts.n_unique(), len(texts) > 0 and int(numbers.sum()) > 0.9 * len(texts))


def choose_columns(
    titles: Sequence[object] | None, options: Options, location: str, sample: pl.DataFrame | None = None
) -> dict[str, int]:
    """column -> position: by the user's choice, by titles and contents, or without titles (None) by order.

    By title the columns `split` and those of labels are chosen too. Doubt is an error that shows the first rows (of the
    `sample`) and the `--columns` to type.
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
    """column -> position of the variables that a query selects: by their names, or else in the order of the query."""
    sample = pl.DataFrame({str(i): [] for i in range(len(names))})
    return choose_columns(names if options.columns is not None or is_header(names) else None, options, location, sample)


def choose_open_columns(titles: Sequence[object], location: str) -> dict[str, int]:
    """The columns of queries, one of which may be missing: that of the slot that is asked for."""
    words = title_words(titles)
    sets = dict(zip(COLUMNS, (HEADS, RELATION_TITLES, TAILS), strict=True))
    found = {column: [i for i, word in enumerate(words) if word in known] for column, known in sets.items()}
    positions = {column: indices[0] for column, indices in found.items() if indices}
    if len(positions) < 2:
        shown = ", ".join(map(str, titles))
        raise HarmoniumError(
            f"{location}: expected columns {', '.join(COLUMNS)}, found {shown}; rename them, or choose them by name or "
            "number (--columns 1,2,3; in Python: columns=...)"
        )
    return positions


def _chosen_by_user(names: Sequence[str], options: Options, location: str) -> dict[str, int]:
    further = options.label_titles | options.type_titles
    if options.weight_column is not None:
        further[WEIGHT] = str(options.weight_column)
    wanted = further | dict(zip(COLUMNS, options.fact_titles, strict=False))
    stripped = {name.strip() for name in names}
    by_number = all(title.isdecimal() for title in wanted.values()) and not set(wanted.values()) <= stripped
    chosen = {column: _position(names, title, location, by_number) for column, title in wanted.items()}
    if options.columns is not None and len({chosen[column] for column in COLUMNS}) < len(COLUMNS):
        shown = ", ".join(options.fact_titles)
        raise HarmoniumError(f"{location}: head, relation and tail are three different columns; given: {shown}")
    return chosen


def _by_order(width: int, chosen: dict[str, int], location: str, sample: pl.DataFrame | None) -> tuple[int, int, int]:
    """Head, relation and tail of a table without titles: its three columns, unless another than the second repeats."""
    rest = [position for position in range(width) if position not in chosen.values()]
    if sample is not None and len(rest) > 3:  # a separator at the end of each row
        rest = [position for position in rest if position < 3 or Contents.of(sample.to_series(position)).n_rows]
    if len(rest) != 3:
        found = f"found {width} column{'s' * (width != 1)}, expected 3: head, relation, tail"
        raise _doubt(location, found, [str(n) for n in range(1, width + 1)], sample, rest)
    head, relation, tail = rest
    if sample is not None and len(sample) >= ENOUGH:
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
    """Head, relation and tail: two columns that share names are entities; if the first and third share none, the
    relation is one of these."""
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
    """Head, relation and tail of a table with titles."""
    taken = set(chosen.values())
    matches = [match for match in _matches(words) if taken.isdisjoint(match.positions)]
    contents = [Contents.of(sample.to_series(i)) if sample is not None else None for i in range(len(words))]
    others = [
        i for i, word in enumerate(words)
        if i not in taken and not _is_remark(word) and word not in RELATION_TITLES and not _is_number(contents[i])
    ]  # fmt: skip
    matches = [match for match in matches if not _is_period(match, words, contents, others)]
    if matches:
        best = [match for match in matches if match.strength[0] == matches[0].strength[0]]
        rivals = [match for match in best if not set(match.positions) & set(best[0].positions)]
        if rivals:
            reason = (
                f"two families of titles: {_shown(names, best[0].positions)}, and {_shown(names, rivals[0].positions)}"
            )
            raise _doubt(location, reason, names, sample, best[0].positions)
        _refuse_constant_type(matches[0].positions, names, words, contents, location, sample)
        return matches[0].positions
    usable = [i for i in range(len(words)) if i not in taken and words[i] != "split" and words[i] not in LABEL_COLUMNS]
    mixed = _mixed([words[i] for i in usable]) if len(usable) == 3 else None
    if mixed is not None:
        head, relation, tail = (usable[i] for i in mixed)
        return head, relation, tail
    if len(usable) == 3 and (options.header or chosen):  # the user said that these titles are titles
        head, relation, tail = usable
        known = (words[head] in HEADS, words[relation] in RELATION_TITLES, words[tail] in TAILS)
        if not any(
            words[i] in HEADS | RELATION_TITLES | TAILS for i, own in zip(usable, known, strict=True) if not own
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
    """Doubt where all rows have one type and another column may be the relation (Gephi: Type is Directed)."""
    head, relation, tail = positions
    found = contents[relation]
    if words[relation] not in ("type", "kind", "typ") or found is None or found.n_rows < ENOUGH or found.n_distinct > 1:
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
    """Where some titles are known: the others are the columns that remain, if just as many remain."""
    relations = [i for i in usable if words[i] in _forms(RELATIONS) and not _is_number(contents[i])]
    relation = min(relations, key=lambda i: _forms(RELATIONS).index(words[i])) if relations else None
    free = [i for i in usable if i != relation and words[i] not in RELATION_TITLES and not _is_remark(words[i])]
    heads = [i for i in free if words[i] in HEADS]
    tails = [i for i in free if words[i] in TAILS]
    free = [i for i in free if words[i] not in HEADS | TAILS]
    if relation is not None and len(heads) <= 1 and len(tails) <= 1:
        if heads and tails:  # of two families
            reason = f"titles of two families: {names[heads[0]]} and {names[tails[0]]}"
            raise _doubt(location, reason, names, sample, (heads[0], relation, tails[0]))
        unknown = [i for i in free if heads or not _is_number(contents[i])]  # numbers and dates are no heads
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
        reason = f"{len(names)} columns ({', '.join(names[:SHOWN_CELLS])}), not clear which are head and tail"
    guess = (*heads, *free) if relation is None else (*heads[:1], *free, *tails[:1])
    if relation is None:
        relation = _most_repeated(guess, contents)
        guess = tuple(i for i in guess if i != relation)
    if relation is not None and len(guess) >= 2:
        guess = (guess[0], relation, *guess[1:])
    raise _doubt(location, reason, names, sample, guess)


def _most_repeated(columns: Sequence[int], contents: Sequence[Contents | None]) -> int | None:
    """The column whose values repeat by far the most: the relation that an error suggests where titles name none."""
    names = [(found.n_distinct, i) for i in columns if (found := contents[i]) is not None and not found.is_number]
    (fewest, column), *others = sorted(names) or [(0, -1)]
    return column if others and others[0][0] >= 2 * fewest > 0 else None


def _is_number(contents: Contents | None) -> bool:
    return contents is not None and contents.is_number


def _is_remark(word: str) -> bool:
    return word in REMARKS or word.startswith("unnamed:")


def _is_period(match: Match, words: Sequence[str], contents: Sequence[Contents | None], others: Sequence[int]) -> bool:
    """Whether "from" and "to" are dates of a fact whose head and tail are two other columns."""
    head, _, tail = match.positions
    return (
        words[head] in TIMES and _is_number(contents[head]) and _is_number(contents[tail]) and len(others) >= 2
    )  # fmt: skip


def _doubt(
    location: str, reason: str, names: Sequence[str], sample: pl.DataFrame | None, guess: Sequence[int] = ()
) -> HarmoniumError:
    """The error where columns are not clear: the first rows, and what to type."""
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
    """The columns of splits and labels in a header, but for those of the facts."""
    columns = {"split": words.index("split")} if "split" in words else {}
    for label_column, fact in zip(LABEL_COLUMNS, facts, strict=True):
        base = re.sub(rf"({'|'.join(FORMS[1:])})$", "", words[fact])
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
