"""Tables of facts: csv and tsv with headers, parquet, pandas and polars frames, networkx graphs."""

from __future__ import annotations

import json
from pathlib import Path

import networkx
import pandas
import polars as pl
import pytest

from graph_checks import facts, whole
from harmonium.data.datasets import load
from harmonium.data.graph import SPLITS
from harmonium.errors import HarmoniumError

FACTS = [("Zoë", "knows", "Müller; Ana"), ("Müller; Ana", "likes", 'a "b" c')]


# Separated text --------------------------------------------------------------------------------------------------

PLAIN = 'Zoë,knows,"Müller; Ana"\n"Müller; Ana",likes,"a ""b"" c"\n'
CSV = {
    "plain": (PLAIN, {}),
    "BOM and CRLF": ("\ufeff" + PLAIN.replace("\n", "\r\n"), {}),
    "blank lines": ("\n\n" + PLAIN.replace("\n", "\n\n , ,\n"), {}),
    "no last newline": (PLAIN.rstrip("\n"), {}),
    "header": ("Subject,Predicate,Object\n" + PLAIN, {}),
    "header with BOM and spaces": ("\ufeff Head , relation,TAIL \n" + PLAIN, {}),
    "spaces around quotes": ('Zoë , knows,  "Müller; Ana"  \n "Müller; Ana" ,likes, "a ""b"" c"\n', {}),
    "semicolons": ('Zoë;knows;"Müller; Ana"\n"Müller; Ana";likes;"a ""b"" c"\n', {}),
    "bars": ('Zoë|knows|Müller; Ana\nMüller; Ana|likes|"a ""b"" c"\n', {}),
    "tabs quote nothing": ('Zoë\tknows\tMüller; Ana\nMüller; Ana\tlikes\ta "b" c\n', {"delimiter": "tab"}),
    "tabs that do quote": ('Zoë\tknows\t"Müller; Ana"\nMüller; Ana\tlikes\t"a ""b"" c"\n', {"quotes": True}),
    "more columns": ("id,source,since,relation,target\n" + "".join(f"1,{line}" for line in (
        'Zoë,1999,knows,"Müller; Ana"\n', '"Müller; Ana",,likes,"a ""b"" c"\n')), {}),
    "by name": ("who,whom,how\n" + 'Zoë,Müller; Ana,knows\nMüller; Ana,"a ""b"" c",likes\n', {"columns": "who,how,whom"}),
    "by number": ('x,Zoë,Müller; Ana,knows\ny,Müller; Ana,"a ""b"" c",likes\n', {"columns": ["2", "4", "3"]}),
    "by number under a header": ('a,b,c\n' + PLAIN, {"columns": "1,2,3", "header": True}),
    "a header as told": ("head,relation,tail\n" + PLAIN, {"header": True}),
}  # fmt: skip


@pytest.mark.parametrize(("text", "options"), CSV.values(), ids=CSV.keys())
def test_csv_in_its_many_shapes(write_folder, text: str, options: dict[str, object]) -> None:
    assert facts(whole(write_folder({"facts.csv": text}) / "facts.csv", **options)) == FACTS


ENCODINGS = {"utf-16": {}, "utf-8-sig": {}, "cp1252": {"encoding": "cp1252"}, "latin-1": {"on_bad": "skip"}}


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl"])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_texts_in_other_encodings(tmp_path: Path, kind: str, encoding: str) -> None:
    """UTF-16 says so; others are given, or guessed where rows may be skipped and no other line is UTF-8."""
    rows = [("Zoë", "knows", "Müller"), ("Müller", "knows", "Ana"), ("Ana", "knows", "Zoë")]
    lines = {"csv": ",".join, "tsv": "\t".join, "jsonl": lambda row: json.dumps(row, ensure_ascii=False)}[kind]
    file = tmp_path / f"facts.{kind}"
    file.write_bytes("".join(lines(row) + "\n" for row in rows).encode(encoding))
    graph = whole(file, **ENCODINGS[encoding])
    assert facts(graph) == rows
    assert [note.kind for note in graph.notes] == ["encoding"] * ("on_bad" in ENCODINGS[encoding])
    if encoding == "cp1252":
        with pytest.raises(HarmoniumError, match=r":1: not UTF-8 text.* --encoding, such as cp1252"):
            whole(file)
        with pytest.raises(HarmoniumError, match="no encoding 'utf-80'"):
            whole(file, encoding="utf-80")


def test_a_tsv_whose_cells_are_quoted_is_read_without_quotes(write_folder) -> None:
    text = '"Zoë"\t"knows"\t"a ""b"" c"\n"Ana"\t"knows"\t"Zoë"\n'
    assert facts(whole(write_folder({"facts.tsv": text}) / "facts.tsv"))[0] == ("Zoë", "knows", 'a "b" c')


@pytest.mark.parametrize("separator", [",", ";", "|", "\t"])
def test_blanks_and_quotes_inside_quoted_cells_are_kept(write_folder, separator: str) -> None:
    """Blanks may stand between a closing quote and the separator, but what is quoted stays as it is."""
    names = [
        f'Robert "Bob" {separator.strip()} Jr.',
        f'Robert "Bob"{separator.strip()} Jr.',
        'a " b',
        'ends in " ',
        '"',
    ]
    quoted = ['"{}"'.format(name.replace('"', '""')) for name in names]
    for blanks in ("", " ", "   "):
        lines = [separator.join((quoted[0], '"r"', cell)) + f"{blanks}\n" for cell in quoted[1:]]
        spaced = "".join(line.replace(f'"{separator}"', f'"{blanks}{separator}"') for line in lines)
        file = write_folder({"facts.csv": spaced}) / "facts.csv"
        graph = whole(file, delimiter=separator, quotes=True, header=False)
        assert facts(graph) == [(" ".join(names[0].split()), "r", " ".join(name.split())) for name in names[1:]]


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet"])
def test_line_breaks_in_names_become_blanks_with_a_note(tmp_path: Path, ending: str) -> None:
    rows = [("a\nb", "r", "c\td"), ("a b", "r", "e\u2028f"), ("g", "r\r\ns", "h")]
    if ending == "tsv":
        rows = [
            tuple(name.replace("\t", "\v").replace("\r\n", "\f").replace("\n", "\x85") for name in row) for row in rows
        ]
    frame, file = pl.DataFrame(rows, schema=["head", "relation", "tail"], orient="row"), tmp_path / f"facts.{ending}"
    write = {"csv": frame.write_csv, "jsonl": frame.write_ndjson, "parquet": frame.write_parquet}
    write.get(ending, lambda path: frame.write_csv(path, separator="\t", quote_style="never"))(file)
    graph = whole(file)
    assert facts(graph) == [("a b", "r", "c d"), ("a b", "r", "e f"), ("g", "r s", "h")]
    changed = {note.text.split(" became")[0]: note.count for note in graph.notes if note.kind == "line breaks"}
    assert changed == {
        "tabs and line breaks in 3 names of entities": 3,
        "tabs and line breaks in 1 names of relations": 1,
    }


HEADERS = {
    "head,head,tail": "names 'head' twice",
    "head,relation,relation": "names 'relation' twice",
    "Head,Relation,Tail,tail": "names 'tail' twice",
    "head,tail,source": "names no relation",
    "subject,object,target": "names no relation",
    "head,relation,tail,head_name,head_name": "names 'head_name' twice",
}


@pytest.mark.parametrize("separator", [",", "\t"])
@pytest.mark.parametrize("header", HEADERS)
def test_a_header_with_a_column_twice_is_an_error_that_names_it(write_folder, header: str, separator: str) -> None:
    width = header.count(",") + 1
    rows = [",".join(f"{column}{row}" if column != 1 else "r" for column in range(width)) for row in range(3)]
    text = "\n".join([header, *rows, ""]).replace(",", separator)
    file = write_folder({f"facts.{'csv' if separator == ',' else 'tsv'}": text}).iterdir().__next__()
    with pytest.raises(HarmoniumError, match=f":1: the header .* {HEADERS[header]}"):
        load(file)
    if width == 3:
        assert len(whole(file, header=False).train) == 4
    assert len(whole(file, columns="1,2,3", header=True).train) == 3
    words = header.split(",")
    if len(set(words)) < width:  # in the same spelling
        twice = next(word for word in words if words.count(word) > 1)
        with pytest.raises(HarmoniumError, match=f"2 columns are named '{twice}'"):
            load(file, columns=[twice, words[1], words[2]], header=True)


def test_arrays_in_json(tmp_path: Path) -> None:
    rows = [("a", "r", "b"), ("b", "r", "c")]
    for name, text in {
        "lines.jsonl": "".join(json.dumps(row) + "\n" for row in rows),
        "rows.json": json.dumps(rows),
        "objects.json": json.dumps([{"source": h, "type": r, "target": t} for h, r, t in rows], indent=1),
        "lines.json": "".join(json.dumps({"s": h, "p": r, "o": t}) + "\n" for h, r, t in rows),
    }.items():
        (tmp_path / name).write_text(text)
        assert facts(whole(tmp_path / name)) == rows


@pytest.mark.parametrize("kind", ["csv", "tsv"])
@pytest.mark.parametrize("on_bad", ["error", "skip"])
def test_a_first_line_is_compared_with_all_files_of_a_folder(write_folder, kind: str, on_bad: str) -> None:
    """It seems to be a header if it shares no name with another; not where no two lines do, nor if a file shares one."""
    texts = {
        "odd": "Person,Tie,Other\na,r,b\nb,r,c\n",
        "fine": "a,q,c\na,r,b\nb,r,c\n",
        "free": "a,r,b\nc,q,d\ne,s,f\n",
    }
    separator = {"csv": ",", "tsv": "\t"}[kind]
    folder = write_folder({f"{name}.{kind}": text.replace(",", separator) for name, text in texts.items()})
    with pytest.raises(HarmoniumError, match=r"odd.*:1: the header \(Person, Tie, Other\) names no head"):
        whole(folder / f"odd.{kind}", on_bad=on_bad)
    assert whole(folder / f"fine.{kind}").notes == ()
    assert facts(whole(folder / f"free.{kind}"))[0] == ("a", "r", "b")
    unread = whole(folder / f"odd.{kind}", header=False)
    assert (len(unread.train), unread.notes) == (3, ())
    splits = {"train": texts["fine"], "test": texts["odd"].replace("Person", "c")}
    both = write_folder({f"{name}.{kind}": text.replace(",", separator) for name, text in splits.items()}, "both")
    assert len(load(both).test) == 3


def test_a_split_column_assigns_facts(write_folder) -> None:
    text = "head,relation,tail,split,head_name\na,r,b,train,Anna\nb,r,a,TEST,\nc,r,a,dev,Carl\nb,q,a,train,\n"
    file = write_folder({"facts.csv": text}) / "facts.csv"
    graph = load(file)
    assert [len(getattr(graph, split)) for split in SPLITS] == [2, 1, 1]
    assert facts(graph, "test") == [("b", "r", "a")]
    assert [graph.entities.name(graph.entities.index(i)) for i in "abc"] == ["Anna", "b", "Carl"]
    assert len(whole(file, columns="1,2,3", header=True).train) == 4
    with pytest.raises(HarmoniumError, match="split 'later' is not train, valid or test"):
        load(write_folder({"facts.csv": text.replace("dev", "later")}) / "facts.csv")
    with pytest.raises(HarmoniumError, match="no facts of the split train"):
        load(write_folder({"facts.csv": "head,relation,tail,split\na,r,b,test\n"}) / "facts.csv")


@pytest.mark.parametrize(
    ("columns", "message"), [("a,b,d", "'d'; there are a, b, c"), ("1,2,4", "'4'; there are 1, 2, 3")]
)
def test_a_column_that_is_not_there_is_named(write_folder, columns: str, message: str) -> None:
    with pytest.raises(HarmoniumError, match=f"facts.csv:1: no column {message}"):
        load(write_folder({"facts.csv": "a,b,c\n"}) / "facts.csv", columns=columns)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": "a,b"}, "columns must be three: head,relation,tail; given: a,b"),
        ({"delimiter": "::"}, "one character .or tab, space., not '::'"),
        ({"literals": "all"}, "literals must be skip or keep, not 'all'"),
        ({"colums": "1,2,3"}, "unknown keyword 'colums'; did you mean 'columns'"),
    ],
)
def test_options_are_checked(options: dict[str, str], message: str) -> None:
    with pytest.raises(HarmoniumError, match=message):
        load("atlas", **options)


# Parquet ---------------------------------------------------------------------------------------------------------


def test_parquet_files_and_folders(tmp_path: Path) -> None:
    frame = pl.DataFrame({"n": [1, 2], "subject": [7, 8], "predicate": ["r", "r"], "object": ["a", "b"]})
    frame.write_parquet(tmp_path / "facts.parquet")
    assert facts(whole(tmp_path / "facts.parquet")) == [("7", "r", "a"), ("8", "r", "b")]
    assert facts(whole(tmp_path / "facts.parquet", columns="object,predicate,n"))[0] == ("a", "r", "1")
    (tmp_path / "folder").mkdir()
    frame[:1].write_parquet(tmp_path / "folder" / "train.parquet")
    frame[1:].write_parquet(tmp_path / "folder" / "test.parquet")
    graph = load(tmp_path / "folder")
    assert (facts(graph), facts(graph, "test")) == ([("7", "r", "a")], [("8", "r", "b")])


# In memory -------------------------------------------------------------------------------------------------------


def test_pandas_frames_of_any_type() -> None:
    frame = pandas.DataFrame([[1, "r", 2.5], [2, "r", 3.0]])
    frame[1] = frame[1].astype("category")
    assert facts(whole(frame)) == [("1", "r", "2.5"), ("2", "r", "3")]
    with pytest.raises(HarmoniumError, match="the frame: row 2: the tail is empty"):
        whole(pandas.DataFrame({"head": ["a", "b"], "relation": ["r", "r"], "tail": ["b", None]}))
    with pytest.raises(HarmoniumError, match="two columns have the same name"):
        whole(pandas.DataFrame([["a", "r", "b"]], columns=["x", "x", "y"]))
    with pytest.raises(HarmoniumError, match="no triples in it"):
        whole(pandas.DataFrame({"head": [], "relation": [], "tail": []}))


def test_networkx_edges_are_facts() -> None:
    graph = networkx.MultiDiGraph(name="ties")
    graph.add_node(1, name="Anna")
    graph.add_edge(1, "b", relation="knows", weight=2)
    graph.add_edge(1, "b", key="likes")
    graph.add_edge("b", 1, label="sees")
    read = whole(graph)
    assert facts(read) == [("1", "knows", "b"), ("1", "likes", "b"), ("b", "sees", "1")]
    assert (read.name, read.entities.labels) == ("ties", ["Anna", "b"])
    simple = networkx.DiGraph()
    simple.add_edge("a", "b", relation="r")
    assert facts(whole(simple)) == [("a", "r", "b")]
    simple.add_edge("b", "c")
    with pytest.raises(HarmoniumError, match=r"edge \(b, c\): no relation; give it an attribute"):
        whole(simple)
    with pytest.raises(HarmoniumError, match="undirected graph has no heads and tails"):
        whole(networkx.Graph([(1, 2)]))
