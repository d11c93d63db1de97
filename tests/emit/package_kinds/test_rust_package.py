"""The crate of Rust: built by Cargo with its build script, run with golden vectors, without the standard library too."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from emitc.compiler import compile_model
from emitc.explore.weights_exchange import exchange
from tests.support.emit.wrapped_models import with_a_wrong_byte, wrapped

REGISTRY = Path("/usr/share/cargo/registry")
"""Where Debian puts the crates of its packages."""
CRATES = {"branches": "branches", "sums": "sums", "match": "match_model"}
"""Crate of each model: `match` is a keyword of Rust."""
MORE: dict[str, dict[str, Any]] = {"branches": {"split_weights": True}, "sums": {"self_test": 1, "steps": True}}
"""Options of a model."""

pytestmark = [
    pytest.mark.skipif(shutil.which("cargo") is None, reason="Cargo is not installed"),
    pytest.mark.skipif(not list(REGISTRY.glob("cc-*")), reason="the crate cc (librust-cc-dev) is not installed"),
]

APP = """\
#![no_std]

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}

static mut ARENAS: (sums::Arena, branches::Arena) = (sums::Arena::new(), branches::Arena::new());

/// Counts what is wrong with two models in one program, one of which keeps a state.
#[no_mangle]
pub extern "C" fn wrong() -> u32 {
    // SAFETY: the only function that uses them is called once.
    let arenas = unsafe { &mut *core::ptr::addr_of_mut!(ARENAS) };
    let mut state = sums::State::new();
    let mut count = 0;
    let mut sum = match sums::Model::new(&mut arenas.0, &mut state) {
        Ok(model) => model,
        Err(_) => return 100,
    };
    let mut both = match branches::Model::new(&mut arenas.1) {
        Ok(model) => model,
        Err(_) => return 101,
    };
    let start = sum.state();
    let mut first = [0; sums::OUTPUT_0_ELEMENTS];
    for round in 0..3 {
        sum.input_0().fill(5);
        both.input_0().fill(9);
        both.input_right().fill(-4);
        match (sum.run(), both.run()) {
            (Ok(outputs), Ok(others)) => {
                // The sum grows in the second round, and is the first one's after the state is put back.
                if round == 0 {
                    first = *outputs.output_y();
                }
                count += u32::from((*outputs.output_0() == first) != (round != 1));
                // The two operands of the sum are 2 * 0.05 and 0 * 0.02, and the zero point is 7.
                count += u32::from(others.output_1().iter().any(|&y| y != 9));
            }
            _ => count += 50,
        }
        if round == 1 {
            sum.set_state(&start);
        }
    }
    count
}
"""
MAIN = """\
#include <stdio.h>
unsigned wrong(void);
void rust_eh_personality(void);

/* Named by the unwinding tables of `core`, which nothing reads where a panic aborts. */
void rust_eh_personality(void)
{
}

int main(void)
{
    printf("%u\\n", wrong());
    return 0;
}
"""


OTHERS = """\
use exchanged::{Arena, Error, Model, WEIGHTS_BYTES};

#[repr(C, align(16))]
struct Aligned([u8; WEIGHTS_BYTES]);
static OLD: Aligned = Aligned(*include_bytes!("../exchanged.weights.bin"));
static NEW: Aligned = Aligned(*include_bytes!("../newer.bin"));

fn main() {
    let mut arena = Arena::new();
    assert_eq!(Model::new(&mut arena, &OLD.0[1..]).err(), Some(Error::Misaligned));
    assert_eq!(Model::new(&mut arena, &OLD.0[..WEIGHTS_BYTES - 1]).err(), Some(Error::WeightsTruncated));
    let mut damaged = Aligned(OLD.0);
    damaged.0[WEIGHTS_BYTES / 2] ^= 1;
    let mut foreign = Aligned(OLD.0);
    foreign.0[20] ^= 1;
    assert_eq!(Model::new(&mut arena, &damaged.0).err(), Some(Error::WeightsDamaged));
    assert_eq!(Model::new(&mut arena, &foreign.0).err(), Some(Error::WeightsDamaged));
    let mut model = Model::new(&mut arena, &OLD.0).expect("the model starts");
    assert_eq!((model.weights_version(), model.input_0_zero_point()), (0, -3));
    assert_eq!(model.output_0_scale(), 1.0 / 256.0);
    model.exchange_weights(&NEW.0).expect("the weights are newer");
    assert_eq!(model.exchange_weights(&OLD.0), Err(Error::WeightsOlder));
    println!("version {}", model.weights_version());
}
"""


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every crate in one workspace, so that the crate cc is compiled once, and an application of two."""
    root = tmp_path_factory.mktemp("rust")
    for name in CRATES:
        wrapped(name, "rust", root, **MORE.get(name, {})).write(root / name)
    made = wrapped("spotter", "rust", root, as_name="exchanged", weights="external")
    made.write(root / "exchanged")
    (root / "exchanged" / "examples" / "others.rs").write_text(OTHERS, encoding="ascii")
    (root / "exchanged" / "newer.bin").write_bytes(exchange(root / "spotter.tflite", root / "exchanged").data)
    (root / "app" / "src").mkdir(parents=True)
    (root / "app" / "src" / "lib.rs").write_text(APP, encoding="ascii")
    (root / "app" / "Cargo.toml").write_text(
        '[package]\nname = "app"\nversion = "0.1.0"\nedition = "2021"\n[lib]\ncrate-type = ["staticlib"]\n'
        '[dependencies]\nsums = { path = "../sums" }\nbranches = { path = "../branches" }\n',
        encoding="ascii",
    )
    members = ", ".join(f'"{name}"' for name in ("app", "exchanged", *CRATES))
    (root / "Cargo.toml").write_text(
        f'[workspace]\nmembers = [{members}]\nresolver = "2"\n'
        '[profile.dev]\npanic = "abort"\ndebug = 0\nincremental = false\n',
        encoding="ascii",
    )
    (root / ".cargo").mkdir()
    (root / ".cargo" / "config.toml").write_text(
        f'[source.crates-io]\nreplace-with = "debian"\n[source.debian]\ndirectory = "{REGISTRY}"\n', encoding="ascii"
    )
    return root


def cargo(root: Path, *arguments: str, ok: bool = True) -> str:
    """Cargo without network and without warnings of the compiler; what it printed."""
    env = os.environ | {"CARGO_HOME": str(root / "home"), "RUSTFLAGS": "-D warnings", "CARGO_TERM_COLOR": "never"}
    done = subprocess.run(
        ["cargo", *arguments, "--offline", "--quiet"], cwd=root, env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode == 0) == ok, done.stdout + done.stderr
    assert "warning" not in done.stderr, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", CRATES)
def test_the_example_runs_its_golden_vectors_and_finds_a_wrong_byte(name: str, workspace: Path) -> None:
    assert cargo(workspace, "run", "-p", CRATES[name], "--example", "golden") == "MATCH\n"
    path = workspace / name / "examples" / "golden.rs"
    path.write_text(with_a_wrong_byte(path.read_text(encoding="ascii")), encoding="ascii")
    printed = cargo(workspace, "run", "-p", CRATES[name], "--example", "golden", ok=False)
    assert printed == "MISMATCH: 1 elements differ\n"


def test_external_weights_are_borrowed_checked_and_exchanged(workspace: Path) -> None:
    assert cargo(workspace, "run", "-p", "exchanged", "--example", "golden") == "MATCH\n"
    assert cargo(workspace, "run", "-p", "exchanged", "--example", "others") == "version 1\n"
    assert "1 passed" in cargo(workspace, "test", "-p", "exchanged", "--doc")


def test_an_output_cannot_be_held_over_the_next_run(workspace: Path) -> None:
    """The documentation of `run` has code that must not compile; without its last use of the output it does."""
    assert "1 passed" in cargo(workspace, "test", "-p", "sums", "--doc")
    path = workspace / "sums" / "src" / "lib.rs"
    text = path.read_text(encoding="ascii")
    held = "    /// assert_eq!(first.len(), sums::OUTPUT_0_ELEMENTS);\n"
    assert held in text
    path.write_text(text.replace(held, ""), encoding="ascii")
    try:
        printed = cargo(workspace, "test", "-p", "sums", "--doc", ok=False)
    finally:
        path.write_text(text, encoding="ascii")
    assert "Test compiled successfully" in printed


def test_two_models_run_in_a_program_without_the_standard_library(workspace: Path) -> None:
    """The linker finds no symbol of the library `std`: the program is C, which calls the crates in a static library."""
    cargo(workspace, "build", "-p", "app")
    (workspace / "main.c").write_text(MAIN, encoding="ascii")
    library = workspace / "target" / "debug" / "libapp.a"
    subprocess.run(["gcc", "main.c", str(library), "-o", "app.out"], cwd=workspace, check=True)
    assert subprocess.run(["./app.out"], cwd=workspace, capture_output=True, text=True, check=True).stdout == "0\n"


@pytest.mark.parametrize(("optimize", "level"), [("speed", "2"), ("size", "s")])
def test_the_optimization_reaches_the_build_script(optimize: str, level: str, tiny: Path) -> None:
    script = compile_model(tiny / "wires.tflite", package="rust", optimize=optimize).files["build.rs"].decode()
    assert f'.opt_level_str("{level}")' in script


def test_what_cargo_leaves_in_the_package_does_not_keep_it(tiny: Path, tmp_path: Path) -> None:
    compiled = compile_model(tiny / "wires.tflite", package="rust")
    compiled.write(tmp_path / "out")
    (tmp_path / "out" / "Cargo.lock").write_text("x", encoding="ascii")
    (tmp_path / "out" / "target").mkdir()
    (tmp_path / "out" / "target" / "object").write_text("x", encoding="ascii")
    compiled.write(tmp_path / "out")
    assert not (tmp_path / "out" / "target").exists()
