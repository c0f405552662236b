"""torch.fx.config: what PyTorch's passes show while they work. Passes here show no progress."""

disable_progress = True
verbose_progress = False
do_not_emit_stack_traces = False
