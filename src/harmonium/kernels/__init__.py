"""Tensors in, tensors out: scores of candidates and their gradients; each fast path beside its reference."""
