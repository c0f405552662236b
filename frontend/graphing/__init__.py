"""`torch.compile` with a backend of the user's own: calls of a function as fx graphs.

pieces     the graphs of a call, and what stands for their tensors
graphed    callables whose graphs a backend compiles
explaining torch._dynamo.explain
"""
