"""torch.onnx.symbolic_opset9: nothing, as the exporter here runs no symbolic functions."""
