"""Ranks, metrics, protocols, baselines and ensembles: anything with the Scorer interface can be ranked."""
