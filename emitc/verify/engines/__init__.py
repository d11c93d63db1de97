"""The golden engines: the interpreters whose output the C has to equal."""
