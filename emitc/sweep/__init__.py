"""Many compilations at once: a specification becomes jobs, and each job becomes one row of a table."""
