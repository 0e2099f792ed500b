"""How sure to be: probabilities fitted on held-out facts."""
