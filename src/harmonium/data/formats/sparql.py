"""A SPARQL endpoint: sparql:http://host/query, read page by page.

The query selects head, relation and tail (by these or similar names, or in this order). The default query takes
everything but literals that are no labels. Pages use LIMIT and OFFSET, so a query should ORDER BY.
"""

import re
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import Request, urlopen

from harmonium.data.columns import COLUMNS, choose_columns
from harmonium.data.formats.rdf import LABELS, StatementCollector, pyoxigraph
from harmonium.data.formats.source import Options, Source
from harmonium.data.graph import Note
from harmonium.runtime.errors import HarmoniumError

PREFIX = "sparql:"
PAGE = 10_000
TIMEOUT = 300  # seconds
EVERYTHING = "SELECT ?head ?relation ?tail WHERE {{ ?head ?relation ?tail {filter} }} ORDER BY ?head ?relation ?tail"
FILTER = f"FILTER(!isLiteral(?tail) || ?relation IN ({', '.join(f'<{label}>' for label in LABELS)}))"

Page = tuple[list[str], list[tuple[Any, ...]]]  # variables, rows


def read(address: str, options: Options, page: int = PAGE) -> Source:
    """All facts and labels that the endpoint has."""
    url = address.removeprefix(PREFIX)
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
        raise HarmoniumError(f"{address}: expected sparql:http://host/path of the endpoint")
    facts, ox = StatementCollector(options), pyoxigraph()
    query = options.query or EVERYTHING.format(filter=FILTER if options.literals == "skip" else "")
    n_pages = 0
    for variables, rows in _pages(url, query, page):
        n_pages += bool(rows)
        chosen = choose_columns(variables, options.columns, f"the variables of {url}")
        for row in rows:
            head, relation, tail = (row[chosen[column]] for column in COLUMNS)
            if None in (head, relation, tail):
                raise HarmoniumError(
                    f"{url}: a row leaves one of {', '.join(variables)} unbound; a fact needs all three"
                )
            if not isinstance(relation, ox.NamedNode):
                raise HarmoniumError(f"{url}: {relation} is selected as a relation, which must be an IRI")
            facts.add(head, relation, tail)
    if n_pages > 1 and not re.search(r"\bORDER\s+BY\b", query, re.IGNORECASE):
        text = f"read in {n_pages} pages without ORDER BY: an endpoint may repeat or lose rows between them"
        facts.notes.append(Note(text, "unordered pages", "", n_pages))
    return facts.source(urlsplit(url).hostname or "endpoint", url)


def _pages(url: str, query: str, size: int) -> Iterator[Page]:
    """Pages up to the first empty one; a query with a LIMIT is sent once."""
    if re.search(r"\bLIMIT\s+\d+(\s+OFFSET\s+\d+)?\s*$", query, re.IGNORECASE):
        yield _select(url, query)
        return
    offset, previous = 0, None
    while previous != []:
        variables, rows = _select(url, f"{query}\nLIMIT {size} OFFSET {offset}")
        if rows and rows == previous:
            raise HarmoniumError(f"{url}: the same rows come again at OFFSET {offset}; end the query with a LIMIT")
        yield variables, rows
        offset, previous = offset + len(rows), rows


def _select(url: str, query: str) -> Page:
    """Send one SELECT."""
    ox = pyoxigraph()
    headers = {"Accept": "application/sparql-results+json", "User-Agent": "harmonium"}
    request = Request(url, urlencode({"query": query}).encode(), headers)
    try:
        with urlopen(request, timeout=TIMEOUT) as response:
            results = ox.parse_query_results(response.read(), format=ox.QueryResultsFormat.JSON)
        if isinstance(results, ox.QuerySolutions):
            return [variable.value for variable in results.variables], [tuple(row) for row in results]
    except HTTPError as error:
        message = " ".join(error.read(2000).decode("utf-8", "replace").split())[:300]
        raise HarmoniumError(f"{url}: the endpoint answers {error.code} {error.reason}: {message}") from error
    except (URLError, OSError) as error:
        raise HarmoniumError(f"{url}: cannot be reached ({getattr(error, 'reason', error)})") from error
    except (SyntaxError, ValueError) as error:
        raise HarmoniumError(f"{url}: no SPARQL results in JSON ({error}); is it an endpoint?") from error
    raise HarmoniumError(f"{url}: the query must be a SELECT of head, relation and tail")
