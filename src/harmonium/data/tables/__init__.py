"""Tables of facts: columns, rows and values, read once for graphs and for facts."""
