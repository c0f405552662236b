"""Settings that apply to the whole program."""
