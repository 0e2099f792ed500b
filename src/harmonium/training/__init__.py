"""From a graph and settings to a trained model: steps, losses, negatives, optimisers, search, tracking."""
