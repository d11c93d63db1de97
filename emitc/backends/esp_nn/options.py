"""What the backend adds to the command line."""

from emitc.backends import BackendOption

OPTIONS = (BackendOption("esp-nn", "ESP-NN on this machine: the folder with its include and src.", "PATH"),)
