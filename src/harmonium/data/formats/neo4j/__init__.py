"""Neo4j: the address of a database, and its facts read over Bolt."""
