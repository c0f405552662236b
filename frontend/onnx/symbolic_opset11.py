"""torch.onnx.symbolic_opset11: nothing, as the exporter here runs no symbolic functions."""
