"""TFLite Micro's signal library."""
