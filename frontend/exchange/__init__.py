"""Exchange with the outside: arrays, copies, pinned memory, printed text."""
