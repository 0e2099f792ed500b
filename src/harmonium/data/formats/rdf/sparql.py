"""A SPARQL endpoint: sparql:http://host/query, read page by page.

The query selects head, relation and tail (by these or similar names, or in this order). The default query selects
everything except literals that are not labels. Pages use LIMIT and OFFSET, so a query should ORDER BY.
"""

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode, urlsplit

from harmonium.data.formats.format import Server
from harmonium.data.formats.rdf.files import StatementCollector
from harmonium.data.formats.rdf.statements import LABEL_PREDICATES, pyoxigraph
from harmonium.data.graph import Note
from harmonium.data.tables.columns import COLUMNS, choose_variables
from harmonium.data.tables.reading_options import Options
from harmonium.data.tables.source import Source
from harmonium.data.untrusted_server import post
from harmonium.errors import HarmoniumError

PREFIX = "sparql:"
ROWS_PER_PAGE = 10_000
RESULTS = "application/sparql-results+json"
EVERYTHING = "SELECT ?head ?relation ?tail WHERE {{ ?head ?relation ?tail {filter} }} ORDER BY ?head ?relation ?tail"
FILTER = f"FILTER(!isLiteral(?tail) || ?relation IN ({', '.join(f'<{label}>' for label in LABEL_PREDICATES)}))"

Page = tuple[list[str], list[dict[str, Any]]]  # variables, rows as in JSON


def read(address: str, options: Options, page: int = ROWS_PER_PAGE) -> Source:
    """Read all facts and labels of the endpoint, or those that a query selects."""
    url = address.removeprefix(PREFIX)
    if not re.match(r"https?://[^/]", url):
        raise HarmoniumError(f"{address}: expected sparql:http://host/path of the endpoint")
    facts, ox = StatementCollector(options), pyoxigraph()
    query = options.query or EVERYTHING.format(filter=FILTER if options.literals == "skip" else "")
    n_pages = n_rows = 0
    for variables, rows in _pages(url, query, page, options.allow_internal):
        n_pages += bool(rows)
        chosen = choose_variables(variables, options, f"the variables of {url}")
        names = [variables[chosen[column]] for column in COLUMNS]
        for row in rows:
            head, relation, tail = (_term(row, name, url) for name in names)
            n_rows += 1
            location, text = f": row {n_rows}", f"{head} {relation} {tail}"
            if None in (head, relation, tail):
                reason = f"a row leaves one of {', '.join(variables)} unbound"
                facts.bad_rows.reject(url, location, reason, "; a fact needs all three", text)
            elif not isinstance(relation, ox.NamedNode):
                reason = "a literal or blank node is selected as a relation"
                message = f"{relation} is selected as a relation, which must be an IRI"
                facts.bad_rows.reject(url, location, reason, text=text, message=message)
            else:
                facts.add(head, relation, tail)
    facts.bad_rows.finish()
    if n_pages > 1 and not re.search(r"\bORDER\s+BY\b", query, re.IGNORECASE):
        text = f"read in {n_pages} pages without ORDER BY: an endpoint may repeat or lose rows between them"
        facts.notes.append(Note(text, "unordered pages", "", n_pages))
    return facts.source(urlsplit(url).hostname or "endpoint", url)


def _pages(url: str, query: str, size: int, allow_internal: bool) -> Iterator[Page]:
    """Pages up to the first empty one; a query with a LIMIT is sent once."""
    if re.search(r"\bLIMIT\s+\d+(\s+OFFSET\s+\d+)?\s*$", query, re.IGNORECASE):
        yield _select(url, query, allow_internal)
        return
    offset, previous = 0, None
    while previous != []:
        variables, rows = _select(url, f"{query}\nLIMIT {size} OFFSET {offset}", allow_internal)
        if rows and rows == previous:
            raise HarmoniumError(f"{url}: the same rows come again at OFFSET {offset}; end the query with a LIMIT")
        yield variables, rows
        offset, previous = offset + len(rows), rows


def _select(url: str, query: str, allow_internal: bool) -> Page:
    """Send one SELECT."""
    answer = post(url, urlencode({"query": query}).encode(), RESULTS, allow_internal)
    try:
        results = json.loads(answer)
        if "boolean" in results:
            raise HarmoniumError(f"{url}: the query must be a SELECT of head, relation and tail")
        variables, rows = results["head"]["vars"], results["results"]["bindings"]
        if not (isinstance(rows, list) and isinstance(variables, list) and all(isinstance(v, str) for v in variables)):
            raise ValueError("no lists of variables and rows")
    except HarmoniumError:
        raise
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise _malformed(url, error) from error
    return variables, rows


def _term(row: dict[str, Any], name: str, url: str) -> Any:
    """The RDF term of a variable in a row; None if it is unbound.

    The parser of pyoxigraph is not used, as nested quoted triples overflow its stack.
    """
    ox = pyoxigraph()
    try:
        if name not in row:
            return None
        kind, value = row[name]["type"], row[name]["value"]
        if kind == "uri":
            return ox.NamedNode(value)
        if kind == "bnode":
            return ox.BlankNode(value)
        if kind not in ("literal", "typed-literal"):
            raise ValueError(f"a term of type {kind!r} cannot be part of a fact")
        language, datatype = row[name].get("xml:lang"), row[name].get("datatype")
        if language is not None or datatype is None:
            return ox.Literal(value, language=language)
        return ox.Literal(value, datatype=ox.NamedNode(datatype))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise _malformed(url, error) from error


def _malformed(url: str, error: Exception) -> HarmoniumError:
    return HarmoniumError(f"{url}: no SPARQL results in JSON ({str(error)[:200]}); is it an endpoint?")


SERVER = Server(
    "sparql",
    "SPARQL endpoint",
    "All facts of an endpoint, or those that a query selects: sparql:URL.",
    lambda address: address.startswith(PREFIX),
    read,
    lambda address: urlsplit(address.removeprefix(PREFIX)).hostname or "endpoint",
)
