"""Graphs in other formats: each module declares a `Format`; registry.py lists them all."""
