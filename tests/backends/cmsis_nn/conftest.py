"""Lets the tests of this folder import the shared machinery of their folder; libraries are built once a session."""

from __future__ import annotations

from pathlib import Path

import pytest

from emitc.backends.cmsis_nn.versions import InstructionSet, Tree
from tests.support.cmsis.library import Library, LibraryOf, missing_tools


@pytest.fixture(scope="session")
def library_of(tmp_path_factory: pytest.TempPathFactory) -> LibraryOf:
    """A tree compiled for an instruction set, with all that the driver can call; skips where a tool is missing."""
    built: dict[tuple[Path, InstructionSet], Library] = {}

    def library(tree: Tree, instructions: InstructionSet) -> Library:
        missing = missing_tools(instructions)
        if missing:
            pytest.skip(f"not installed: {missing}")
        key = tree.root, instructions
        if key not in built:
            built[key] = Library(tree, instructions, tmp_path_factory.mktemp("cmsis_nn"))
        return built[key]

    return library
