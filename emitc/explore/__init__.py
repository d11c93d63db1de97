"""What takes several compilations: the Pareto front, an arena that several models share."""
