"""Write results for people and other programs: files, databases, vector stores."""
