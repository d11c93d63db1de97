"""TFLite files to a SourceModel."""
