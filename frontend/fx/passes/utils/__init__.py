"""torch.fx.passes.utils: parts of graphs, found and put into modules of their own."""
