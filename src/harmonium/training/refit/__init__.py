"""Update a trained model for added, removed and rejected facts, without training again."""
