"""RDF: files in every syntax, SPARQL endpoints, and weights said about statements."""
