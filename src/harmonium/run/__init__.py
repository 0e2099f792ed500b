"""The run folder: settings, graph, model, history and evaluation on disk, and the checkpoints of an unfinished training."""
