"""What the backend adds to the command line."""

from emitc.backends import BackendOption

OPTIONS = (BackendOption("cmsis-nn", "CMSIS-NN on this machine: the folder with its Include and Source.", "PATH"),)
