"""Settings that hold for a whole program."""
