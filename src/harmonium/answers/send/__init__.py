"""Results written for people and other programs: files, databases, vector stores."""
