"""Checks of a graph: what is in it, and what is probably wrong with its files."""
