"""torch._dynamo.backends: what torch.compile may hand graphs to."""
