"""Compositions, harmony and the GradientGraph made of them; scoring of open slots."""
