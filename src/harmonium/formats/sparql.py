"""A SPARQL endpoint: sparql:http://host/query, asked page by page.

The query selects head, relation and tail (by these or similar names, or in this order). Without one, everything but
literals that are no labels is taken. Pages follow each other by LIMIT and OFFSET, so a query should ORDER BY.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import Request, urlopen

from harmonium.errors import HarmoniumError
from harmonium.formats import COLUMNS, Options, Source
from harmonium.formats.rdf import LABELS, Facts, pyoxigraph
from harmonium.formats.table import pick

PREFIX = "sparql:"
PAGE = 10_000
SECONDS = 300
EVERYTHING = "SELECT ?head ?relation ?tail WHERE {{ ?head ?relation ?tail {filter} }} ORDER BY ?head ?relation ?tail"
FILTER = f"FILTER(!isLiteral(?tail) || ?relation IN ({', '.join(f'<{label}>' for label in LABELS)}))"


def read(address: str, options: Options, page: int = PAGE) -> Source:
    """All that the endpoint answers, as facts and names."""
    url = address.removeprefix(PREFIX)
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
        raise HarmoniumError(f"{address}: expected sparql:http://host/path of the endpoint")
    facts, ox = Facts(options), pyoxigraph()
    query = options.query or EVERYTHING.format(filter=FILTER if options.literals == "skip" else "")
    pages = 0
    for names, rows in _pages(url, query, page):
        pages += bool(rows)
        chosen = pick(names, options, f"the variables of {url}")
        for row in rows:
            head, relation, tail = (row[chosen[slot]] for slot in COLUMNS)
            if None in (head, relation, tail):
                raise HarmoniumError(f"{url}: a row leaves one of {', '.join(names)} unbound; a fact needs all three")
            if not isinstance(relation, ox.NamedNode):
                raise HarmoniumError(f"{url}: {relation} is selected as a relation, which must be an IRI")
            facts.add(head, relation, tail)
    if pages > 1 and not re.search(r"\bORDER\s+BY\b", query, re.IGNORECASE):
        facts.notes.append(f"read in {pages} pages without ORDER BY: an endpoint may repeat or lose rows between them")
    return facts.source(urlsplit(url).hostname or "endpoint", url)


def _pages(url: str, query: str, size: int) -> Iterator[tuple[list[str], list[tuple[Any, ...]]]]:
    """One answer after the other, until one is empty; a query with its own LIMIT is asked once."""
    if re.search(r"\bLIMIT\s+\d+(\s+OFFSET\s+\d+)?\s*$", query, re.IGNORECASE):
        yield _ask(url, query)
        return
    offset, rows = 0, [()]
    while rows:
        before = rows
        names, rows = _ask(url, f"{query}\nLIMIT {size} OFFSET {offset}")
        if rows and rows == before:
            raise HarmoniumError(f"{url}: the same rows come again at OFFSET {offset}; end the query with a LIMIT")
        yield names, rows
        offset += len(rows)


def _ask(url: str, query: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """The variables and the rows of one SELECT."""
    ox = pyoxigraph()
    headers = {"Accept": "application/sparql-results+json", "User-Agent": "harmonium"}
    request = Request(url, urlencode({"query": query}).encode(), headers)
    try:
        with urlopen(request, timeout=SECONDS) as answer:
            found = ox.parse_query_results(answer.read(), format=ox.QueryResultsFormat.JSON)
        if isinstance(found, ox.QuerySolutions):
            return [variable.value for variable in found.variables], [tuple(row) for row in found]
    except HTTPError as error:
        said = " ".join(error.read(2000).decode("utf-8", "replace").split())[:300]
        raise HarmoniumError(f"{url}: the endpoint answers {error.code} {error.reason}: {said}") from error
    except (URLError, OSError) as error:
        raise HarmoniumError(f"{url}: cannot be reached ({getattr(error, 'reason', error)})") from error
    except (SyntaxError, ValueError) as error:
        raise HarmoniumError(
            f"{url}: no SPARQL answer in JSON comes from there ({error}); is it an endpoint?"
        ) from error
    raise HarmoniumError(f"{url}: the query must be a SELECT of head, relation and tail")
