"""The baseline tier: graphs that were not met before, computed op by op on the host.

Nothing is fused and nothing is compiled for a graph. An op runs with a ready function that takes
any size: NumPy's, or a native kernel where NumPy's result has other bits than the compiled one.
"""
