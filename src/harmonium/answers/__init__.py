"""Queries to a run: predict, score, complete, classify, probabilities, new entities, export."""
