"""Settings: one typed tree, recipes, and values as users give them."""
