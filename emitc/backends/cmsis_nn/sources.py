"""What a build has to compile of a CMSIS-NN tree: the files that define the functions used, and all that these use.

Read from the tree itself: files were renamed, split and merged from version to version, and partial copies of the library
are common. Code of other instruction sets does not count.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from emitc.backends.cmsis_nn.versions import InstructionSet, Tree, definitions, refused
from emitc.errors import EmitcError
from emitc.records import dataclass
from emitc.target import BuildSupport

_SKIPPED = frozenset(["Tests", "Test", "Documentation", "Examples", "Bindings", ".git", ".pio"])
_CORE_HEADER = "cmsis_compiler.h"
_CORE_PLACES = (
    "CMSIS/Core/Include", "Core/Include", "CMSIS_Core/Include", "cmsis_core/Include", "CMSIS/Core", "CMSIS_6/CMSIS/Core/Include",
    "CMSIS_5/CMSIS/Core/Include", "cmsis_6/CMSIS/Core/Include", "CMSIS-Core/Include", "Include",
)  # fmt: skip
"""Where CMSIS-Core may lie near the library: paths from its root and from the three folders above."""

_WITHOUT_CORE = ("__GNUC_PYTHON__", "__RESTRICT=__restrict", "__CLZ(x)=((x) ? __builtin_clz(x) : 32)")
"""For the host: the library's own switch for compilers without CMSIS-Core, and what it then lacks."""


@dataclass(frozen=True, slots=True)
class Defined:
    """A function or table of the tree: the file that defines it, and the library's own names that it uses.

    inline: it stands in a header, so that nothing has to be compiled for it.
    """

    file: Path
    uses: frozenset[str]
    inline: bool


def source_index(tree: Tree, instructions: InstructionSet) -> Mapping[str, Defined]:
    """Every function and table that the tree defines for an instruction set, by name.

    A name with internal linkage in several files keeps the first; such names are inline buffer sizes of one meaning.
    """
    files = [path for path in sorted(tree.include.rglob("*.h")) if path.is_file()]
    files += sorted(
        path
        for path in tree.root.rglob("*.c")
        if not _SKIPPED & set(path.relative_to(tree.root).parts) and path.is_file()
    )
    index: dict[str, tuple[Path, frozenset[str]]] = {}
    for path in files:
        text = path.read_text(encoding="utf-8", errors="replace")
        for definition in definitions(text, instructions.macros):
            index.setdefault(definition.name, (path, definition.names))
    names = frozenset(index) | frozenset(tree.functions)
    return {name: Defined(path, uses & names, path.suffix == ".h") for name, (path, uses) in index.items()}


def core_include(tree: Tree) -> Path | None:
    """The folder of CMSIS-Core's headers near the tree; None where no such folder exists."""
    folders = (above / place for above in (tree.root, *list(tree.root.parents)[:3]) for place in _CORE_PLACES)
    return next((folder for folder in folders if (folder / _CORE_HEADER).is_file()), None)


def needs_core(tree: Tree) -> bool:
    """Whether the headers include CMSIS-Core's, as those of 4.0.0 do."""
    types = tree.include / "arm_nn_math_types.h"
    return types.is_file() and _CORE_HEADER in types.read_text(encoding="utf-8", errors="replace")


def _missing(tree: Tree, name: str, user: str, instructions: InstructionSet) -> EmitcError:
    what = f"CMSIS-NN {tree.version} at this path does not define {name}"
    why = f"{user}; no C file below the path has it for the instruction set {instructions.value}"
    return refused(what, tree.root, why, "give the path of a complete CMSIS-NN, or of a version that has the function")


def sources_of(
    tree: Tree,
    functions: Iterable[str],
    instructions: InstructionSet,
    *,
    host: bool = False,
    index: Mapping[str, Defined] | None = None,
) -> BuildSupport:
    """What to compile for the functions used, the files sorted.

    host: for this machine's compiler, which is no Arm compiler (portable code only). index: of the tree for that
    instruction set, where it was read before. Raises EmitcError where a file is missing, and where the version needs
    CMSIS-Core for a target and none lies near it.
    """
    assert not host or instructions is InstructionSet.PORTABLE
    if index is None:
        index = source_index(tree, instructions)
    wanted = [(name, "the generated code calls it") for name in sorted(set(functions), reverse=True)]
    seen: set[str] = set()
    files: set[Path] = set()
    while wanted:
        name, user = wanted.pop()
        if name in seen:
            continue
        seen.add(name)
        defined = index.get(name)
        if defined is None:
            raise _missing(tree, name, user, instructions)
        if not defined.inline and defined.file not in files:
            files.add(defined.file)
            # The whole file is linked: what its other functions use has to be there too, as far as this copy has it.
            mates = [function for function, other in index.items() if other.file == defined.file]
            used = sorted({use for mate in mates for use in index[mate].uses if use in index}, reverse=True)
            wanted += [(use, f"{defined.file.name} uses it") for use in used]
        wanted += [(used, f"{name} uses it") for used in sorted(defined.uses, reverse=True)]
    includes = [tree.include]
    defines: list[str] = []
    if needs_core(tree):
        core = core_include(tree)
        if host:
            defines += _WITHOUT_CORE
        elif core is None:
            what = f"CMSIS-NN {tree.version} needs CMSIS-Core, which does not lie next to it"
            hint = "use CMSIS-NN 4.1.0 or later, or put CMSIS-Core next to it as Core/Include"
            raise refused(what, tree.root, f"its headers include {_CORE_HEADER}", hint)
        else:
            includes.append(core)
    # Early files take the integer types from a header of Arm compilers.
    headers = ("stdint.h",) if host and tree.version.functions < (12, 0, 0) else ()
    return BuildSupport(tuple(sorted(files)), tuple(includes), tuple(defines), headers)
