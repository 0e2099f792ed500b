"""Changes of a trained model by new, removed and rejected facts."""
