"""What every layer needs: errors, settings, this process and others, files and locks; knows nothing of graphs or models."""
