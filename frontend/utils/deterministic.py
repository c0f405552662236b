"""torch.utils.deterministic: what deterministic programs do with memory that holds nothing yet."""

fill_uninitialized_memory = True
"""Whether such memory gets a known value. Ours always does: `torch.empty` gives zeros."""
