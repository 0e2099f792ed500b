"""Known facts that are probably wrong: how likely each is, why, and what was meant."""
