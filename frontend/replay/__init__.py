"""Replaying a call without its Python: guards, outcomes, captures."""
