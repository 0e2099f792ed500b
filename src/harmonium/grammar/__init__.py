"""Families of constraints, their strengths and weights, and the sum of harmonies."""
