"""The functions of torch, by subject."""
