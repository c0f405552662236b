"""Tensors and the world outside: arrays, copies, pinned memory, printed text."""
