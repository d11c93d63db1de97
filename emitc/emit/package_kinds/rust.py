"""A package that is a crate of Rust: its C by a build script, a wrapper without the standard library, an example."""

from emitc.emit.package_kinds.kind import Content
from emitc.emit.package_kinds.wrapper import BIT_TYPES, FOLDER, c_files, language_name, wrapped_ports
from emitc.program.weights import ALIGNMENT

_KEYWORDS = (
    "abstract as async await become box const crate do dyn extern final fn gen impl in let loop macro match mod move mut "
    "override priv pub ref self super trait try type unsafe unsized use virtual where yield"
)
_OF_CARGO = "alloc aux build cc con core deps emitc examples incremental nul prn proc_macro std test"
_TAKEN = frozenset((*_KEYWORDS.split(), *_OF_CARGO.split()))
"""Names that Cargo refuses for a crate, or that a crate would hide: keywords that C lacks, its folders, the library's crates."""


def files(content: Content) -> dict[str, str]:
    """The manifest, the build script, the wrapper, and the example with golden vectors."""
    program = content.program
    inputs, outputs = wrapped_ports(content, BIT_TYPES)
    values = {
        "crate": language_name(program.name, _TAKEN),
        "folder": FOLDER,
        "c_files": c_files(program, content.units),
        "level": content.optimize.removeprefix("-O"),
        "weights_align": ALIGNMENT,
        "quantized": [
            f"{side}_{w.port.index}"
            for side, ports in (("input", inputs), ("output", outputs))
            for w in ports
            if w.port.scale is not None and w.port.zero_point is not None
        ],
        "inputs": inputs,
        "outputs": outputs,
    }
    templates = {
        "Cargo.toml": "Cargo.toml",
        "build.rs": "build.rs",
        "src/lib.rs": "lib.rs",
        "examples/golden.rs": "golden.rs",
    }
    return {path: content.render(f"rust/{template}", **values) for path, template in templates.items()}
