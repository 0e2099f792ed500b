"""Folders of ids, with names in files of their own: OpenKE and LibKGE."""
