"""torch.fx.experimental: what packages ask of PyTorch's compiler."""
