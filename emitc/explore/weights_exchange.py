"""Other weights for a package that is in use: the file of a new model's weights, or what stands against it.

The new model is compiled with the package's options. Where the code that comes out is the package's, to the last character, the
new weights fit. Otherwise the first layer that differs is named, by what the package's manifest says of it.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from emitc._version import __version__
from emitc.compiler import compile_model
from emitc.emit.external_weights import weights_json
from emitc.errors import CannotCompile, EmitcError, Where
from emitc.options import EXTERNAL, Options
from emitc.planner.region_assignment import Region
from emitc.program.members import members
from emitc.program.weights import HEADER_BYTES, with_header
from emitc.records import dataclass, fields

_LARGEST = 1 << 26
"""Bytes of a manifest at most."""
LARGEST_SIGNATURE = 0x10000
"""Bytes of a signature at most, as the generated code has it."""
_MOST_VERSION = (1 << 32) - 1
_COMPARED = (("inputs", "input"), ("outputs", "output"), ("kernel", "kernel"))


@dataclass(frozen=True, slots=True)
class Signature:
    """A signature for a file of weights. room: bytes that are kept for one that is not made yet."""

    data: bytes = b""
    room: int = 0


UNSIGNED = Signature()


@dataclass(frozen=True, slots=True)
class Exchange:
    """A file of weights for a package. covered_bytes: those at its start that a signature covers."""

    data: bytes
    structure: str
    version: int
    covered_bytes: int
    old_sha256: str

    def to_json(self) -> dict[str, Any]:
        return {"bytes": len(self.data)} | members(self, "structure version covered_bytes old_sha256")


def exchange(
    model: Path,
    package: Path,
    *,
    version: int | None = None,
    signature: Signature = UNSIGNED,
    backends: Mapping[str, str] | None = None,
    plugins: tuple[Path, ...] = (),
    vectors: Path | None = None,
) -> Exchange:
    """The file of a model's weights for a package.

    package: its directory or its manifest. version: of the weights, one more than the package's by default. backends, plugins:
    options whose paths a manifest does not have. vectors: an .npz file with the inputs of the package's self test, random ones by
    default. Raises EmitcError for a package without external weights, CannotCompile where
    the weights do not fit, and what compile_model raises.
    """
    manifest = read_manifest(package)
    options = options_from(manifest, package, backends or {}, plugins)
    made = compile_model(model, options, self_test_vectors=vectors)
    external, old = made.program.external, manifest["weights"]
    assert external is not None
    if external.structure != old["structure"]:
        what = f"the weights of {model.name} do not fit the package {manifest['name']}"
        where = Where(model=model.name, option=f"--for {package}")
        why = difference(manifest, weights_json(made.program))
        hint = "compile a new package; with --without drop-constant-channels it takes weights whichever channels are constant"
        raise CannotCompile(what, where, why, hint)
    number = int(old["version"]) + 1 if version is None else version
    if not 0 <= number <= _MOST_VERSION:
        where = Where(option=f"--weights-version {number}")
        raise EmitcError("the version of the weights is out of range", where, "it has 32 bits", "choose a smaller one")
    payload = external.payload()
    if max(len(signature.data), signature.room) > LARGEST_SIGNATURE:
        why = f"the generated code takes at most {LARGEST_SIGNATURE} bytes"
        raise EmitcError("the signature is too long", Where(option="--signature"), why, "sign a digest of the file")
    data = with_header(payload, external.structure, number, signature.data, signature.room)
    return Exchange(data, external.structure, number, HEADER_BYTES + len(payload), str(old["sha256"]))


def read_manifest(package: Path) -> dict[str, Any]:
    """The manifest of a package with external weights. Raises EmitcError where there is none."""
    path = package / "manifest.json" if package.is_dir() else package
    where = Where(option=f"--for {package}")
    hint = "give the directory that emitc compile --weights external has written"
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
        read = json.loads(data) if len(data) <= _LARGEST else None
    except (OSError, ValueError, RecursionError) as error:
        raise EmitcError(f"{path} cannot be read", where, str(error)[:200], hint) from error
    content: dict[str, Any] = read if isinstance(read, dict) else {}
    weights = content.get("weights")
    if not isinstance(weights, dict) or not isinstance(content.get("options"), dict):
        raise EmitcError("the package has no external weights", where, f"{path} does not speak of any", hint)
    known = isinstance(weights.get("structure"), str) and isinstance(weights.get("layers"), list)
    if not known or not isinstance(weights.get("version"), int) or not isinstance(content.get("name"), str):
        raise EmitcError("the manifest is damaged", where, "it does not say what the code is made for", hint)
    return content


def options_from(
    manifest: Mapping[str, Any], package: Path, backends: Mapping[str, str], plugins: tuple[Path, ...]
) -> Options:
    """The options of a package. Raises EmitcError where its manifest states none that can be read."""
    stated: dict[str, Any] = manifest["options"]
    try:
        same = {
            field.name: stated[field.name]
            for field in fields(Options)
            if isinstance(stated.get(field.name), str | int | float | bool) and field.name != "expect_partition"
        }
        return Options(
            **same
            | {
                "name": manifest["name"],
                "shapes": {str(name): tuple(map(int, shape)) for name, shape in stated["shapes"].items()},
                "disabled": frozenset(map(str, stated["disabled"])),
                "cpu_only": tuple(map(str, stated["cpu_only"])),
                "backends": {**{str(k): str(v) for k, v in stated["backends"].items()}, **backends},
                "regions": tuple(
                    Region(str(r["name"]), int(r["bytes"]), float(r["cost"]), int(r.get("cache", 0)))
                    for r in stated.get("regions", [])
                ),
                "places": tuple((str(what), str(region)) for what, region in stated.get("places", [])),
                "variants": tuple((int(index), str(variant)) for index, variant in stated.get("variants", [])),
                "self_test": int(stated.get("self_test", {"inputs": 0})["inputs"]),
                "plugins": plugins,
                "weights": EXTERNAL,
            }
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        why = f"{type(error).__name__}: {error}"[:200]
        hint = "give a package as emitc has written it"
        raise EmitcError("the manifest is damaged", Where(option=f"--for {package}"), why, hint) from error


def difference(manifest: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """The first thing in which the code of a package and that of a new model differ, in words."""
    old = manifest["weights"]
    for mine, other in zip(old["layers"], new["layers"], strict=False):
        if not isinstance(mine, dict):
            return "the manifest is damaged"
        if text := _layer_difference(mine, other):
            return text
    if len(old["layers"]) != len(new["layers"]):
        return f"the package has {len(old['layers'])} layers, and the new model {len(new['layers'])}"
    made = manifest.get("emitc_version")
    if made != __version__:
        return f"emitc {made} wrote the package, and this is {__version__}, whose code differs"
    return "the memory plan, the inputs and outputs or the state differ, as `emitc diff` shows for a new package"


def _layer_difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """The first attribute in which two layers differ, "" where their code is the same."""
    name = new["function"]
    if old.get("function") != name:
        return f"where the package has the layer {old.get('function')}, the new model has {name}"
    for key, what in _COMPARED:
        if old.get(key) != new[key]:
            return f"{name}: its {what} is {_text(old.get(key))} in the package, and {_text(new[key])} in the new model"
    for key, what in (("numbers", "parameter"), ("arrays", "array")):
        before = old.get(key)
        stated = before if isinstance(before, dict) else {}
        for entry in dict.fromkeys((*stated, *new[key])):
            mine, other = stated.get(entry), new[key].get(entry)
            if mine != other:
                return (
                    f"{name}: its {what} {entry} is {_text(mine)} in the package, and {_text(other)} in the new model"
                )
    return ""


def _text(value: object) -> str:
    if value is None:
        return "absent"
    return ", ".join(map(str, value))[:200] if isinstance(value, list) else str(value)[:200]
