"""The address of a Neo4j database: bolt://host:7687/database?label=Person&name=title, never with a password in it.

`label` selects nodes with one of these labels, `name` is the property that names a node (default: name, title or label),
and `id` the property that identifies it (default: the database's own element id). `label` and `name` may be repeated or
hold a list separated by commas.
"""

import re
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from harmonium.errors import HarmoniumError

SCHEMES = ("bolt", "bolt+s", "bolt+ssc", "neo4j", "neo4j+s", "neo4j+ssc")
PREFIX = re.compile(r"(bolt|neo4j)(\+s|\+ssc)?://")
NAME_PROPERTIES = ("name", "title", "label")  # properties that name a node, by default
EXPECTED = "expected bolt://host:7687/database or neo4j://host:7687/database"


@dataclass(frozen=True)
class Neo4jAddress:
    """A server, a database in it, and how its nodes are read."""

    url: str  # scheme, host and port, as the driver takes them
    database: str | None = None  # default: the user's
    labels: tuple[str, ...] = ()  # of nodes; default: any
    names: tuple[str, ...] = NAME_PROPERTIES  # properties that name a node: the first one that it has
    id: str | None = None  # property that identifies a node; default: its element id

    @classmethod
    def parse(cls, text: str) -> "Neo4jAddress":
        """Parse an address. The error for an invalid one never shows a password."""
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError as error:
            raise HarmoniumError(f"{without_user(text)}: no address of a server; {EXPECTED}") from error
        if parts.scheme not in SCHEMES or not parts.hostname:
            raise HarmoniumError(f"{without_user(text)}: no address of a Neo4j server; {EXPECTED}")
        if parts.username is not None or parts.password is not None:
            raise HarmoniumError(
                f"{without_user(text)}: a user name or password in an address ends up in files and logs; "
                "set the environment variables NEO4J_USERNAME and NEO4J_PASSWORD instead"
            )
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        options = _options(parts, text)
        return cls(
            f"{parts.scheme}://{host}" + (f":{port}" if port is not None else ""),
            unquote(parts.path.strip("/")) or None,
            options.get("label", ()),
            options.get("name", NAME_PROPERTIES),
            options["id"][0] if "id" in options else None,
        )

    @property
    def location(self) -> str:
        """The server and database, for messages."""
        return f"{self.url}/{self.database}" if self.database else self.url

    @property
    def graph_name(self) -> str:
        """The name of the graph: that of the database, else the host."""
        return self.database or urlsplit(self.url).hostname or "neo4j"


def _options(parts: SplitResult, text: str) -> dict[str, tuple[str, ...]]:
    options = {}
    for key, values in parse_qs(parts.query, keep_blank_values=True).items():
        names = tuple(name.strip() for value in values for name in value.split(",") if name.strip())
        if key not in ("label", "name", "id") or not names:
            raise HarmoniumError(f"{without_user(text)}: unknown option '{key}'; there are label=, name= and id=")
        options[key] = names
    if len(options.get("id", ())) > 1:
        raise HarmoniumError(f"{without_user(text)}: id= is one property, not {len(options['id'])}")
    return options


def is_neo4j(text: object) -> bool:
    return isinstance(text, str) and PREFIX.match(text) is not None


def without_user(text: str) -> str:
    """An address without a user name and password, for messages."""
    scheme, separator, rest = text.partition("://")
    authority, slash, path = rest.partition("/")
    return scheme + separator + authority.rpartition("@")[2] + slash + path


# Cypher --------------------------------------------------------------------------------------------------------------


def quoted(name: str) -> str:
    """Quote a label, type or property for Cypher. `\\u` begins an escape even in quotes, so its backslash is escaped."""
    return "`" + name.replace("\\u", "\\u005Cu").replace("`", "``") + "`"


def name_of(node: str, names: tuple[str, ...]) -> str:
    """Cypher expression for the name of a node."""
    properties = ", ".join(f"{node}.{quoted(name)}" for name in names)
    return f"coalesce({properties})"


def id_of(node: str, id: str | None) -> str:
    """Cypher expression for the identifier of a node."""
    return f"elementId({node})" if id is None else f"{node}.{quoted(id)}"


def facts_query(address: Neo4jAddress) -> str:
    """Cypher query for all relationships that are not predictions, with the names of their nodes. Parameter: $labels."""
    names, id = address.names, address.id
    labels = (
        " AND any(label IN labels(h) WHERE label IN $labels) AND any(label IN labels(t) WHERE label IN $labels)"
        if address.labels
        else ""
    )
    return (
        f"MATCH (h)-[r]->(t) WHERE coalesce(r.predicted, false) <> true{labels} "
        f"RETURN {id_of('h', id)} AS head, type(r) AS relation, {id_of('t', id)} AS tail, "
        f"{name_of('h', names)} AS head_name, {name_of('t', names)} AS tail_name"
    )
