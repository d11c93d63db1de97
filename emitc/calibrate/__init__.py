"""A float ONNX model to a quantized one, by ONNX Runtime (`emitc quantize`)."""
