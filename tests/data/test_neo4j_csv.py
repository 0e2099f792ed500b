"""CSV exports of Neo4j: headers of neo4j-admin in all their forms, and both kinds of apoc.export.csv."""

from __future__ import annotations

import gzip

import pytest

import harmonium
from graph_checks import facts
from harmonium.data.datasets import load
from harmonium.data.formats import neo4j_csv
from harmonium.errors import HarmoniumError

PEOPLE = "personId:ID(Person),name,born:int,:LABEL\n1,Keanu Reeves,1964,Person;Actor\n2,Lana Wachowski,1965,Person\n"
MOVIES = 'movieId:ID(Movie){id-type:long},title:string,:LABEL\n1,The Matrix,Movie\n2,"Matrix, The: Reloaded",Movie\n'
ROLES = (
    ":START_ID(Person),role,:END_ID(Movie),:TYPE\n"
    '1,Neo,1,ACTED_IN\n1,"Neo, again",2,ACTED_IN\n2,,1,DIRECTED\n'
)  # fmt: skip
EXPECTED = {
    ("Keanu Reeves", "ACTED_IN", "The Matrix"),
    ("Keanu Reeves", "ACTED_IN", "Matrix, The: Reloaded"),
    ("Lana Wachowski", "DIRECTED", "The Matrix"),
}


def named(graph: harmonium.Graph) -> set[tuple[str, str, str]]:
    return set(graph.names_of(graph.facts()))


def headerless(text: str) -> tuple[str, str]:
    header, _, rest = text.partition("\n")
    return header + "\n", rest


def test_a_neo4j_csv_folder_has_names_and_spaces_of_identifiers(write_folder) -> None:
    folder = write_folder(
        {"people.csv": PEOPLE, "movies.csv": MOVIES, "roles.csv": ROLES, "notes.txt": "not a table\n"}
    )
    graph = load(folder)
    assert named(graph) == EXPECTED
    assert set(graph.entities.ids) == {"Person:1", "Person:2", "Movie:1", "Movie:2"}
    assert named(load(folder / "roles.csv")) == EXPECTED


def test_headers_may_be_files_of_their_own_and_data_in_parts(write_folder) -> None:
    header, rows = headerless(ROLES)
    first, *others = rows.splitlines(True)
    people_header, people = headerless(PEOPLE)
    folder = write_folder(
        {
            "roles-header.csv": header, "roles-part1.csv": first,
            "roles-part2.csv.gz": gzip.compress("".join(others).encode()),
            "people_header.csv": people_header, "people.csv": people, "movies.csv": MOVIES,
        }
    )  # fmt: skip
    assert named(load(folder)) == EXPECTED


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_other_separators(write_folder, separator: str) -> None:
    lines = [":START_ID,:END_ID,:TYPE", "a,b,R", "b,c,R"]
    nodes = ["id:ID,name", "a,Anna", "b,Ben", "c,Cleo"]
    files = {
        name: "\n".join(line.replace(",", separator) for line in text)
        for name, text in (("r.csv", lines), ("n.csv", nodes))
    }
    assert named(load(write_folder(files))) == {("Anna", "R", "Ben"), ("Ben", "R", "Cleo")}


APOC = """"_id","_labels","born","name","title","_start","_end","_type","roles","predicted"
"0",":Person:Actor","1964","Keanu Reeves","",,,,,
"1",":Movie","","","The Matrix",,,,,
"2",":Person","1965","Lana Wachowski","",,,,,
,,,,,"0","1","ACTED_IN","[""Neo""]",
,,,,,"2","1","DIRECTED","",
,,,,,"2","1","ACTED_IN","","true"
"""


def test_one_file_of_apoc_holds_nodes_and_relationships(write_folder) -> None:
    graph = load(write_folder({"all.csv": APOC}) / "all.csv", valid=0, test=0)
    assert facts(graph, "train") == [("0", "ACTED_IN", "1"), ("2", "DIRECTED", "1")]
    assert graph.names_of(graph.train)[0][0] == "Keanu Reeves"
    assert "left out 1 relationships that were predicted" in map(str, graph.notes)


def test_apoc_with_bulk_import(write_folder) -> None:
    files = {
        "m.nodes.Person.csv": ":ID,name:string,:LABEL\n0,Anna,Person\n1,Ben,Person\n",
        "m.relationships.KNOWS.csv": ":START_ID,:END_ID,:TYPE,since:long\n0,1,KNOWS,1999\n1,0,KNOWS,\n",
    }
    assert named(load(write_folder(files))) == {("Anna", "KNOWS", "Ben"), ("Ben", "KNOWS", "Anna")}


def test_other_tables_are_read_as_before(write_folder) -> None:
    graph = load(write_folder({"facts.csv": "start,type,end\na,r,b\nb,r,c\n"}) / "facts.csv", valid=0, test=0)
    assert facts(graph, "train") == [("a", "r", "b"), ("b", "r", "c")]
    folder = write_folder(
        {"train.csv": ":START_ID,:END_ID,:TYPE\na,b,r\n", "test.csv": ":START_ID,:END_ID,:TYPE\nb,a,r\n"}, "splits"
    )
    assert len(load(folder).test) == 1


def test_a_file_of_relationships_is_read_whatever_lies_beside_it(write_folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """MAX_FILES are looked at for names; the file itself always counts."""
    folder = write_folder({"people.csv": PEOPLE, "movies.csv": MOVIES, "roles.csv": ROLES, "train.txt": "a\tr\tb\n"})
    assert named(load(folder / "roles.csv")) == EXPECTED
    monkeypatch.setattr(neo4j_csv, "MAX_FILES", 0)
    assert len(named(load(folder / "roles.csv"))) == 3


def test_the_current_folder_has_a_name(write_folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(write_folder({"people.csv": PEOPLE, "movies.csv": MOVIES, "roles.csv": ROLES}, "films"))
    assert load(".").name == "films"


def test_mistakes_name_file_and_line(write_folder) -> None:
    with pytest.raises(HarmoniumError, match=r"r.csv:3: the tail is empty"):
        load(write_folder({"r.csv": ":START_ID,:END_ID,:TYPE\na,b,r\nb,,r\n"}))
    with pytest.raises(HarmoniumError, match="no triples in it"):
        load(write_folder({"r.csv": ":START_ID,:END_ID,:TYPE\n"}, "empty"))
    with pytest.raises(HarmoniumError, match=r"r.csv: relationships without a column :TYPE"):
        load(write_folder({"r.csv": ":START_ID,:END_ID,x\na,b,r\n"}, "untyped"))
    graph = load(write_folder({"r.csv": ":START_ID,:END_ID,:TYPE\na,b,r\nb,,r\n"}, "skipped"), on_bad="skip")
    assert len(graph.train) == 1


def test_a_folder_is_read_again_when_any_of_its_files_changes(write_folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harmonium.data.datasets, "WORTH_CACHING", 1)
    folder = write_folder({"people.csv": PEOPLE, "movies.csv": MOVIES, "roles.csv": ROLES})
    for path in (folder, folder / "roles.csv"):
        assert named(load(path)) == EXPECTED
    (folder / "people.csv").write_text(PEOPLE.replace("Keanu Reeves", "Keanu Charles"))
    for path in (folder, folder / "roles.csv"):
        assert ("Keanu Charles", "ACTED_IN", "The Matrix") in named(load(path))
