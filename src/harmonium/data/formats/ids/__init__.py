"""Formats with facts as ids and names in separate files: OpenKE and LibKGE."""
