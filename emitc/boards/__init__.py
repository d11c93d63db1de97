"""A generated package on a board: project, build, boot, proof, numbers. It decides nothing about the model."""
