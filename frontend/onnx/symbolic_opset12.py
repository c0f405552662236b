"""torch.onnx.symbolic_opset12: nothing, as the exporter here runs no symbolic functions."""
