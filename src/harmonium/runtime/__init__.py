"""Support for every layer: processes, devices, files, locks, display of results. Knows nothing of graphs or models."""
