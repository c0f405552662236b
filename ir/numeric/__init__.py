"""Numerical routines behind ops: special functions, float64 on narrower units."""
