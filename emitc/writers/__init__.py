"""Writers: typed descriptions of models -> model files, for tests and for the shipped examples."""
