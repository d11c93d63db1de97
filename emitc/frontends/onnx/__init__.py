"""ONNX files to a SourceModel."""
