"""Replay of calls without their Python code: guards, outcomes, captures."""
