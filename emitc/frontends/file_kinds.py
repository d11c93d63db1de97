"""What a file is that is no model: told by its first bytes, so that the refusal can say how to make a model of it."""

import re

from emitc.errors import EmitcError, Where

IDENTIFIER = b"TFL3"
"""At byte 4 of every TFLite file."""
_KERAS = "convert it to .tflite with tf.lite.TFLiteConverter.from_keras_model"
_TORCH = "in Python: torch.onnx.export(net.eval(), (example,), 'model.onnx', external_data=False)"
"""For the network as an object. The recipes are those of docs/task-float-model.md; PyTorch 2.13 has run them."""
_TORCH_EXPORT = (
    "python -c \"import torch; torch.onnx.export(torch.export.load('model.pt2'), f='model.onnx', external_data=False)\""
)
_TORCH_SCRIPT = "in Python: torch.onnx.export(torch.jit.load('model.pt'), (example,), 'model.onnx', dynamo=False)"
_ONNX_FIELDS = frozenset((0x12, 0x1A, 0x22, 0x2A, 0x32, 0x3A, 0x42))
"""Tags of what follows the version in an ONNX model: producer, domain, model version, text, graph, operator sets."""
_KINDS = tuple((re.compile(pattern, re.ASCII | re.DOTALL), what, hint) for pattern, what, hint in (
    (rb"\A\Z", "it is empty", "copy or export the model again"),
    (rb"\A\x89HDF", "it is an HDF5 file, such as Keras saves", _KERAS),
    # torch.save wrote a pickled number first before it wrote archives. Any pickle begins with its protocol, then a frame, a
    # container, a class or a number.
    (rb"\A\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", "it is a PyTorch file of the old kind", _TORCH),
    (rb"\A\x80[\x02-\x05][\x95}\](c\x8a]", "it is a pickled Python object, such as PyTorch saves", _TORCH),
    (rb"\A.{4}ET\d\d", "it is a program of ExecuTorch (.pte)", f"take the network that it was made of, {_TORCH}"),
    (
        rb"\Aversion https://git-lfs",
        "it is the pointer that Git LFS keeps instead of a file", "fetch the file itself: git lfs pull",
    ),
    (rb"(?i:\A\s*<(!doctype html|html))", "it is a web page", "download the file itself, not the page that shows it"),
    (
        rb"\A\x08\x01[%s]" % bytes(sorted(_ONNX_FIELDS)),
        "it is the graph of a SavedModel", "convert it with tf.lite.TFLiteConverter.from_saved_model",
    ),
    (
        rb"unsigned char \w+\[\w*\][^;{]{0,80}=\s*\{",
        "it is C source, maybe a model as an array", "pass the .tflite file that it was made of",
    ),
))  # fmt: skip
"""How files begin, what they are, and what to do."""
_ARCHIVES = (
    ((b"serialized_exported_program.json", b"archive_format"), "it is a program of torch.export (.pt2)", _TORCH_EXPORT),
    ((b"/code/__torch__",), "it is a TorchScript program of PyTorch", _TORCH_SCRIPT),
    ((b"data.pkl",), "it is a PyTorch file, of a network or its weights", _TORCH),
    ((b"model.weights.h5", b"metadata.json"), "it is a Keras file", _KERAS),
    ((b".npy",), "it is an archive of arrays", "pass the model; arrays go with --vectors or --calibration"),
)


def recognised(data: bytes) -> tuple[str, str]:
    """What the file is, and what to do; both empty where it is not known, or may be an ONNX model."""
    if data.startswith(b"PK"):
        names = ((what, hint) for marks, what, hint in _ARCHIVES if any(mark in data for mark in marks))
        return next(names, ("it is an archive", "unpack it"))
    return next(((what, hint) for pattern, what, hint in _KINDS if pattern.search(data[:4096])), ("", ""))


def require_tflite(data: bytes) -> None:
    """Raises EmitcError for bytes that are not of a TFLite file."""
    if len(data) >= 16 and data[4:8] == IDENTIFIER:
        return
    why, hint = recognised(data)
    # ONNX models begin with a version of the format.
    if len(data) > 2 and data[0] == 0x08 and 3 <= data[1] <= 32 and data[2] in _ONNX_FIELDS:
        why, hint = "it looks like an ONNX model", "give it a name that ends in .onnx"
    why, hint = why or "the identifier TFL3 is missing at byte 4", hint or "pass a TFLite FlatBuffers file"
    raise EmitcError("this is not a .tflite file", Where(), why, hint)
