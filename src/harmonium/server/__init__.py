"""The explorer of a run: a JSON API and one web page."""
