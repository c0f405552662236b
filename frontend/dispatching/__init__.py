"""`__torch_dispatch__`: classes and modes that are asked for operators of `aten`.

PyTorch asks for each operator that runs, below autograd. A call records a graph here, and runs no
operator. So the calls of public functions are asked for that are operators of aten, under their
names there (`torch.ops.aten.mul.Tensor`). A function that is a formula over others, as
`nn.functional.linear` is, asks for those.

    names      operators of public functions      formulas   functions that are no operators
    operators  the operators of aten              layers     such functions of nn.functional
    multihead  attention of several heads
    calls      the call of an operator            asking     the question of a function; modes
    wrappers   tensors without memory of their own
"""
