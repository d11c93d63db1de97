"""What the backend adds to the command line."""

from emitc.backends.ethos_u.configurations import ACCELERATORS, U65
from emitc.backends.option import BackendOption

OPTIONS = (
    BackendOption("npu", "the accelerator that runs what it can.", "NAME", tuple(ACCELERATORS)),
    BackendOption("npu-memory", "where vela keeps constants and scratch.", "MODE", U65),
    BackendOption("npu-optimise", "what vela is to save.", "WHAT", ("speed", "size"), "speed"),
    BackendOption("npu-always", "Take regions also where they do not pay.", ""),
    BackendOption("allow-npu-rounding", "Give ONNX models to the NPU too, which rounds as TensorFlow Lite does.", ""),
    BackendOption("ethosu-driver", "Arm's driver: the folder with ethosu_driver.h, for boards.", "PATH"),
)
