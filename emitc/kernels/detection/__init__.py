"""Post-processing of object detectors."""
