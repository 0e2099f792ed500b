"""A Graph, and how files, frames and endpoints become one: names, splits, formats, datasets."""
