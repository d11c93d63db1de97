"""Matrix products and fully connected layers."""
