"""Several regions of memory end to end: an arena in each, the same bits, and nothing of one written into another."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import cffi
import pytest

from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.errors import CannotCompile, EmitcError
from emitc.options import Options
from emitc.planner.region_assignment import Region
from emitc.schedule.memory_regions import traffic_of
from emitc.target import boards, load_board
from emitc.verify.build import HostModel, build_shared, sources
from emitc.verify.golden_run import interface_of
from emitc.verify.reference import random_samples
from emitc.verify.verification import verify

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

TWO = (Region("DTCM", 112, 1.0), Region("SRAM", 4096, 4.0))
"""Too small a fast region for the tiny models."""
STRICT = (
    "-std=c11",
    "-Wall",
    "-Wextra",
    "-Wpedantic",
    "-Wconversion",
    "-Wsign-conversion",
    "-Wshadow",
    "-Wundef",
    "-Werror",
)


@pytest.fixture(scope="module")
def spotter(tiny: Path) -> Compiled:
    return compile_model(tiny / "spotter.tflite", regions=TWO)


def text_of(compiled: Compiled, suffix: str) -> str:
    return compiled.files[f"{compiled.program.name}{suffix}"].decode("ascii")


def changed(compiled: Compiled, before: str, after: str) -> Compiled:
    """The model with the first `before` in its C replaced."""
    name = f"{compiled.program.name}.c"
    text = text_of(compiled, ".c")
    assert before in text
    return replace(compiled, files=compiled.files | {name: text.replace(before, after, 1).encode("ascii")})


@pytest.mark.parametrize(
    "changes",
    [
        {"regions": (Region("DTCM", 16 << 10, 1.0), Region("SRAM", 64 << 10, 4.0))},
        {"regions": (Region("DTCM", 8 << 10, 1.0), Region("SRAM", 16 << 10, 2.0)), "ram_budget": "min"},
        {"regions": (Region("PSRAM", 8 << 20, 9.0), Region("DTCM", 10 << 10, 1.0), Region("SRAM", 37 << 10, 2.0))},
        {"regions": (Region("DTCM", 16 << 10, 1.0), Region("SRAM", 64 << 10, 4.0)), "disabled": frozenset({"overlap"})},
    ],
    ids=("two", "by rows", "three", "apart"),
)
def test_a_model_of_the_corpus_in_several_regions(changes: dict[str, object], shared_models: Path) -> None:
    compiled = compile_model(shared_models / "tflite" / "person_detect_int8.tflite", Options(**changes))  # type: ignore[arg-type]
    proof = verify(compiled, samples=1, layers=True, sanitize=True)
    assert proof.match and proof.memory_errors == ()
    assert proof.layers_checked == len(compiled.program.steps)
    assert [(use.region, use.planned) for use in proof.arenas] == [
        (region.name, region.plan.arena_bytes) for region in compiled.program.regions
    ]
    assert all(use.planned == use.observed for use in proof.arenas)
    assert all(region.plan.arena_bytes <= region.limit_bytes for region in compiled.program.regions)
    assert min(region.plan.arena_bytes for region in compiled.program.regions if region.name != "PSRAM") > 0


@pytest.mark.parametrize("model", ["spotter", "branches", "wires"])
@pytest.mark.parametrize("budget", [None, "min"])
def test_the_tiny_models_in_two_regions(model: str, budget: str | None, tiny: Path) -> None:
    whole = compile_model(tiny / f"{model}.tflite", ram_budget=budget).program.plan
    largest = max(p.size_bytes for p in whole.placements)
    for fast in (16, whole.arena_bytes // 2 // 16 * 16, whole.arena_bytes):
        regions = (Region("FAST", fast, 1.0), Region("SLOW", max(largest, whole.arena_bytes), 4.0))
        proof = verify(
            compile_model(tiny / f"{model}.tflite", regions=regions, ram_budget=budget), samples=2, layers=True
        )
        assert proof.match, (fast, proof)
        assert all(use.planned == use.observed for use in proof.arenas)


def test_a_model_with_state_in_two_regions(shared_models: Path) -> None:
    regions = (Region("DTCM", 64, 1.0), Region("SRAM", 4096, 4.0))
    compiled = compile_model(shared_models / "tflite" / "mww_hey_jarvis_v2.tflite", regions=regions)
    assert all(region.plan.arena_bytes for region in compiled.program.regions)
    assert verify(compiled, samples=4, layers=True, sanitize=True).match


def test_the_proof_and_the_bounds_are_of_each_region(spotter: Compiled) -> None:
    program = spotter.program
    assert [region.name for region in program.regions] == ["DTCM", "SRAM"]
    assert program.plan.arena_bytes == sum(region.plan.arena_bytes for region in program.regions)
    assert len(program.proofs) == 2
    for region, proof in zip(program.regions, program.proofs, strict=True):
        assert proof.startswith(f"{region.name} arena {region.plan.arena_bytes} B")
        for ending in (".h", ".c"):
            assert proof in text_of(spotter, ending).replace("\n *             ", " ")
    assert sum(region.traffic_bytes for region in program.regions) > program.plan.arena_bytes


def test_a_write_outside_the_arena_of_a_region_is_found(spotter: Compiled) -> None:
    planned = spotter.program.regions[0].plan.arena_bytes
    for at in (planned, -1):
        wrong = changed(spotter, "    op0_conv_2d(", f"    arena_dtcm[{at}] ^= 1;\n    op0_conv_2d(")
        proof = verify(wrong, samples=2, reference="numpy")
        assert not proof.match
        assert f"spotter_run wrote byte {at} of the arena in DTCM of {planned} bytes" in proof.memory_errors


def test_a_region_that_is_used_less_than_planned_is_found(spotter: Compiled) -> None:
    """Even where the sum of all regions would be right."""
    first, second = spotter.program.regions
    bytes_of = [region.plan.arena_bytes for region in (first, second)]
    wrong = replace(
        spotter,
        program=replace(
            spotter.program,
            regions=(
                replace(first, plan=replace(first.plan, arena_bytes=bytes_of[0] + 16)),
                replace(second, start_bytes=second.start_bytes + 16),
            ),
        ),
    )
    proof = verify(wrong, samples=2, reference="numpy")
    assert [(use.planned, use.observed) for use in proof.arenas] == [
        (bytes_of[0] + 16, bytes_of[0]),
        (bytes_of[1], bytes_of[1]),
    ]
    assert not proof.match


def dead(compiled: Compiled, region: int) -> tuple[int, int]:
    """A step of the plan, and a byte of the region's arena that no buffer alive during the step holds."""
    program = compiled.program
    part = program.regions[region]
    for step in range(len(program.schedule)):
        alive = [s for s in program.slots if s.region == part.name and s.first <= step < s.end]
        held = {byte for s in alive for byte in range(s.offset_bytes, s.offset_bytes + s.size_bytes)}
        for byte in range(part.plan.arena_bytes):
            if byte not in held:
                return step, byte
    raise AssertionError("everything is alive all the time")


def test_a_sum_that_is_right_hides_no_region(spotter: Compiled) -> None:
    proof = verify(spotter, samples=1, reference="numpy")
    first, second = proof.arenas
    assert proof.match
    swapped = (replace(first, observed=first.observed - 16), replace(second, observed=second.observed + 16))
    assert not replace(proof, arenas=swapped).match


def test_the_hook_names_places_in_all_arenas(spotter: Compiled, tmp_path: Path) -> None:
    spotter.write(tmp_path / "package")
    model = HostModel(build_shared(tmp_path / "package", tmp_path, trace=True), interface_of(spotter))
    seen: dict[int, int] = {}
    model.set_hook(lambda index, offset, data: seen.update({index: offset}))
    model.run(random_samples(spotter.graph, 1, 0)[0])
    slots = {slot.name: slot for slot in spotter.program.slots}
    assert seen == {step.index: spotter.program.start_of(slots[f"AT_OP{step.index}"]) for step in spotter.program.steps}
    assert len(model.arena) == spotter.program.plan.arena_bytes


def test_the_sanitizers_are_silent_where_nothing_is_wrong(spotter: Compiled) -> None:
    assert verify(spotter, samples=2, reference="numpy", sanitize=True).memory_errors == ()


def test_a_layer_that_writes_into_another_region_is_found(spotter: Compiled) -> None:
    position, byte = dead(spotter, 1)
    done = f'emitc_layer_hook("spotter", {spotter.program.schedule[position].index}u'  # type: ignore[union-attr]
    proof = verify(changed(spotter, done, f"arena_sram[{byte}] ^= 1, {done}"), samples=2, reference="numpy")
    start = spotter.program.regions[1].start_bytes
    assert not proof.match
    assert any(f"wrote arena byte {start + byte}, which is not its own" in error for error in proof.memory_errors)


def test_a_read_of_a_dead_buffer_of_a_region_is_found(spotter: Compiled) -> None:
    position, byte = dead(spotter, 1)
    call = f"    {spotter.program.schedule[position].name}("  # type: ignore[union-attr]
    read = f"    if (arena_sram[{byte}] == 77u) {{\n        return EMITC_NOT_READY;\n    }}\n"
    proof = verify(changed(spotter, call, read + call), samples=2, reference="numpy", sanitize=True)
    assert any("use-after-poison" in error for error in proof.memory_errors)
    assert not any("wrote" in error for error in proof.memory_errors)


def test_init_refuses_what_a_region_lacks(spotter: Compiled, tmp_path: Path) -> None:
    spotter.write(tmp_path / "package")
    library = build_shared(tmp_path / "package", tmp_path, trace=False)
    ffi = cffi.FFI()
    ffi.cdef(
        "typedef struct { unsigned char *arena_dtcm; unsigned char *arena_sram; void *state; uint32_t ready; } spotter_t;"
        "typedef struct { void *dtcm; size_t dtcm_bytes; void *sram; size_t sram_bytes; } spotter_arenas_t;"
        "int spotter_init(spotter_t *self, const spotter_arenas_t *arenas, void *state, size_t state_bytes);"
        "int spotter_run(spotter_t *self);"
    )
    lib = ffi.dlopen(str(library))
    sizes = [region.plan.arena_bytes for region in spotter.program.regions]
    memory = [ffi.new("char[]", size + 32) for size in sizes]
    address = [int(ffi.cast("uintptr_t", block)) + -int(ffi.cast("uintptr_t", block)) % 16 for block in memory]
    model = ffi.new("spotter_t *")

    def init(*, move: tuple[int, int] = (0, 0), less: tuple[int, int] = (0, 0), null: int = -1) -> int:
        places = [ffi.NULL if i == null else ffi.cast("void *", address[i] + move[i]) for i in range(2)]
        arenas = ffi.new("spotter_arenas_t *", (places[0], sizes[0] - less[0], places[1], sizes[1] - less[1]))
        return int(lib.spotter_init(model, arenas, ffi.NULL, 0))

    assert lib.spotter_init(ffi.NULL, ffi.NULL, ffi.NULL, 0) == lib.spotter_init(model, ffi.NULL, ffi.NULL, 0) == 2
    assert init(null=0) == init(null=1) == 2
    assert init(less=(1, 0)) == init(less=(0, 1)) == 3
    assert init(move=(8, 0)) == init(move=(0, 1)) == 5
    assert lib.spotter_run(model) == 1
    assert init() == 0
    assert lib.spotter_run(model) == 0


def test_instances_with_arenas_of_their_own_run_side_by_side(spotter: Compiled, tmp_path: Path) -> None:
    spotter.write(tmp_path / "package")
    library = build_shared(tmp_path / "package", tmp_path, trace=False)
    one, other = (HostModel(library, interface_of(spotter)) for _ in range(2))
    first, second = random_samples(spotter.graph, 2, 1)
    alone = one.run(first)[0].tolist()
    one.write_inputs(first)
    other.run(second)
    assert one.invoke()[0].tolist() == alone


COMPILERS = {
    "gcc": ["gcc", "-Wcast-align=strict"],
    "clang": ["clang"],
    "cortex-m4": ["arm-none-eabi-gcc", "-mcpu=cortex-m4", "-mthumb", "-Wcast-align=strict"],
}


@pytest.mark.parametrize("name", COMPILERS)
@pytest.mark.parametrize("budget", [None, "min"])
def test_every_compiler_takes_it_with_sections(name: str, budget: str | None, tiny: Path, tmp_path: Path) -> None:
    """The constants lie where SECTION_WEIGHTS says."""
    command = COMPILERS[name]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    regions = (*TWO, Region("QSPI", 0, 9.0))
    compiled = compile_model(tiny / "spotter.tflite", regions=regions, places=(("weights", "qspi"),), ram_budget=budget)
    compiled.write(tmp_path / "package")
    text = text_of(compiled, ".c")
    assert (
        text.count("SPOTTER_SECTION_WEIGHTS static const")
        == sum(len(step.constants) for step in compiled.program.steps)
        > 0
    )
    assert "_Static_assert" in text and "SPOTTER_ARENA_QSPI_BYTES 0u" in text_of(compiled, ".h")
    application = tmp_path / "application.c"
    application.write_text(
        '#include "spotter.h"\n'
        "static _Alignas(SPOTTER_ARENA_ALIGN) SPOTTER_SECTION_DTCM unsigned char fast[SPOTTER_ARENA_DTCM_BYTES];\n"
        "static _Alignas(SPOTTER_ARENA_ALIGN) SPOTTER_SECTION_SRAM unsigned char slow[SPOTTER_ARENA_SRAM_BYTES];\n"
        "emitc_status start(spotter_t *model);\n"
        "emitc_status start(spotter_t *model)\n{\n"
        "    const spotter_arenas_t arenas = {\n"
        "        .dtcm = fast, .dtcm_bytes = sizeof fast, .sram = slow, .sram_bytes = sizeof slow\n    };\n"
        "    return spotter_init(model, &arenas, NULL, 0);\n}\n",
        encoding="ascii",
    )
    files, includes = sources(tmp_path / "package")
    sections = [f'-DSPOTTER_SECTION_{what}=__attribute__((section(".{what.lower()}")))' for what in ("DTCM", "WEIGHTS")]
    for defines in ([], sections):
        done = subprocess.run(
            [
                *command,
                *STRICT,
                "-O2",
                *defines,
                *(f"-I{f}" for f in includes),
                "-c",
                *map(str, files),
                str(application),
            ],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stderr[:3000]
        assert (b".weights" in (tmp_path / "spotter.o").read_bytes()) == bool(defines)
        assert (b".dtcm" in (tmp_path / "application.o").read_bytes()) == bool(defines)


def test_what_is_placed_lies_there(tiny: Path) -> None:
    free = compile_model(tiny / "spotter.tflite", regions=TWO)
    fast = next(slot for slot in free.program.slots if slot.region == "DTCM" and slot.name.startswith("AT_OP"))
    named = {port.label: f"AT_INPUT_{port.index}" for port in free.program.inputs}
    label, slot = next(iter(named.items()))
    for what, name in ((fast.name, fast.name), (label, slot)):
        compiled = compile_model(tiny / "spotter.tflite", regions=TWO, places=((what, "sram"),))
        assert {s.region for s in compiled.program.slots if s.name == name} == {"SRAM"}
        assert verify(compiled, samples=2).match


def test_constants_in_a_region_take_room_from_its_arena(tiny: Path) -> None:
    plain = compile_model(tiny / "spotter.tflite", regions=TWO).program
    size = plain.constant_bytes + 48
    placed = compile_model(
        tiny / "spotter.tflite", regions=(Region("DTCM", size, 1.0), TWO[1]), places=(("weights", "DTCM"),)
    ).program
    assert placed.weights == "DTCM"
    assert placed.regions[0].limit_bytes == 48 >= placed.regions[0].plan.arena_bytes
    with pytest.raises(CannotCompile, match="the constants do not fit DTCM"):
        compile_model(tiny / "spotter.tflite", regions=TWO, places=(("weights", "DTCM"),))


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ((("AT_OP0", "PSRAM"),), "there is no region PSRAM"),
        ((("weights", "PSRAM"),), "there is no region PSRAM"),
        ((("AT_OP99", "DTCM"),), "there is no tensor AT_OP99 in the arena"),
        ((("AT_OP0", "DTCM"), ("AT_OP0", "SRAM")), "AT_OP0 is to lie in two regions"),
    ],
)
def test_places_that_cannot_be_are_refused(places: tuple[tuple[str, str], ...], message: str, tiny: Path) -> None:
    with pytest.raises(EmitcError, match=message) as refused:
        compile_model(tiny / "spotter.tflite", regions=TWO, places=places)
    assert refused.value.exit_code == 2


@pytest.mark.parametrize("names", [("DTCM", "dtcm"), ("int", "B"), ("weights", "B"), ("A", "A_bytes"), ("a-b", "B")])
def test_names_that_cannot_be_in_c_are_refused(names: tuple[str, str], tiny: Path) -> None:
    with pytest.raises(EmitcError, match="region") as refused:
        compile_model(tiny / "spotter.tflite", regions=tuple(Region(name, 4096, 1.0) for name in names))
    assert refused.value.exit_code == 2


def test_regions_that_are_too_small_are_no_fault_of_the_command(tiny: Path) -> None:
    with pytest.raises(CannotCompile, match="the tensors do not fit the regions") as refused:
        compile_model(tiny / "spotter.tflite", regions=(Region("A", 64, 1.0), Region("B", 32, 2.0)))
    assert refused.value.exit_code == 1 and "A 64, B 32" in refused.value.why


def test_places_need_regions(tiny: Path) -> None:
    with pytest.raises(EmitcError, match="there are no regions"):
        compile_model(tiny / "spotter.tflite", places=(("AT_OP0", "DTCM"),))


def test_without_regions_nothing_says_so(tiny: Path) -> None:
    compiled = compile_model(tiny / "spotter.tflite")
    everything = b"".join(compiled.files.values())
    assert not re.search(rb"regions|SECTION|arenas", everything)
    assert not compiled.program.regions and {slot.region for slot in compiled.program.slots} == {""}


def test_more_multiply_accumulates_are_more_traffic(tiny: Path) -> None:
    from emitc.lower.layers import lower_nodes
    from emitc.lower.within_budget import partition_graph
    from emitc.schedule.search import best_schedule

    compiled = compile_model(tiny / "spotter.tflite")
    partition = partition_graph(compiled.graph, Options())
    nodes = lower_nodes(partition)
    found = traffic_of(partition.graph, best_schedule(partition.graph, nodes, 16, None))
    sizes = {tensor.name: tensor.size_bytes for tensor in partition.graph.tensors}
    assert all(found[name] >= 2 * sizes[name] for name in found if name in sizes)
    first = partition.graph.inputs[0]
    assert found[first] > 2 * sizes[first]  # read by a convolution


def test_boards_name_their_regions_fastest_first() -> None:
    found = {name: [(r.name, r.size_bytes) for r in load_board(name).arena_regions] for name in boards()}
    assert found["teensy41"] == [("dtcm", 524_288), ("ocram", 524_288)]
    assert [name for name, _ in found["nucleo_h743zi"]] == ["dtcm", "axi_sram", "sram123", "sram4"]
    assert [name for name, _ in found["disco_f746ng"]] == ["dtcm", "sram"]  # they touch, and do not cost the same
    assert found["nucleo_l4r5zi"] == [("sram1", 655_360)]  # three that touch and cost the same


def test_a_byte_of_flash_costs_one_of_ram_and_its_wait_states() -> None:
    board = load_board("nucleo_l4r5zi")
    (flash,) = [region for region in board.memory if region.kind == "flash"]
    assert board.flash_timing is not None
    assert flash.cost == 1 + board.flash_timing.cycles_per_constant_byte
