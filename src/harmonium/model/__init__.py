"""Compositions, harmony, the GradientGraph that combines them, and scoring of open slots."""
