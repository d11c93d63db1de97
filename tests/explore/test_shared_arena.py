"""Several models in one arena, in C under the sanitizers: in turns and at the same time, each computes what it computes alone."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from emitc.compiler import compile_model
from emitc.errors import CannotCompile, EmitcError
from emitc.explore.shared_arena import SharedArena, together, together_header
from emitc.program import Program
from emitc.verify.build import run_compiler, sources

MODELS = ("spotter", "branches")
RUNS = 12

# Every model runs alone first, in memory of its own; then in its part of the common arena. All inputs come from one generator.
DRIVER = """\
#include "{header}"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fill(unsigned char *bytes, size_t count, uint32_t seed)
{{
    for (size_t i = 0; i < count; i++) {{
        seed = seed * 1664525u + 1013904223u;
        bytes[i] = (unsigned char)(seed >> 24);
    }}
}}

static void *aligned(size_t bytes)
{{
    /* Not a byte more than asked for, so that the sanitizer sees the first one too far. */
    return bytes == 0u ? NULL : aligned_alloc({upper}_ALIGN, bytes);
}}
{models}
int main(void)
{{
    unsigned char *const arena = aligned({upper}_ARENA_BYTES);
    unsigned char *const state = aligned({upper}_STATE_BYTES);
{alone}
{body}
    free(arena);
    free(state);
    puts("equal");
    return 0;
}}
"""

MODEL = """
static {name}_t {name}_model;
static unsigned char {name}_expected[{runs}][{output_bytes}];

static void {name}_write({name}_t *model, uint32_t k)
{{
{write}
}}

static void {name}_run_checked({name}_t *model)
{{
    if ({name}_run(model) != EMITC_OK) {{
        puts("{name} does not run");
        exit(1);
    }}
}}

static void {name}_read(const {name}_t *model, unsigned char *to)
{{
{read}
}}

static void {name}_compare(const {name}_t *model, uint32_t k)
{{
    unsigned char found[{output_bytes}];
    {name}_read(model, found);
    if (memcmp(found, {name}_expected[k], sizeof found) != 0) {{
        printf("{name} differs in run %u\\n", (unsigned)k);
        exit(1);
    }}
}}

static void {name}_alone(void)
{{
    unsigned char *const arena = aligned({upper}_ARENA_BYTES);
    unsigned char *const state = aligned({upper}_STATE_BYTES);
    if ({name}_init(&{name}_model, arena, {upper}_ARENA_BYTES, state, {upper}_STATE_BYTES) != EMITC_OK) {{
        exit(1);
    }}
    for (uint32_t k = 0; k < {runs}; k++) {{
        {name}_write(&{name}_model, k);
        {name}_run_checked(&{name}_model);
        {name}_read(&{name}_model, {name}_expected[k]);
    }}
    free(arena);
    free(state);
}}

static void {name}_start(unsigned char *arena, unsigned char *state)
{{
    void *const own_state = {upper}_STATE_BYTES != 0u ? state + {together}_{upper}_STATE : NULL;
    if ({name}_init(&{name}_model, arena + {together}_{upper}_ARENA, {upper}_ARENA_BYTES, own_state, {upper}_STATE_BYTES)
        != EMITC_OK) {{
        puts("{name} does not start");
        exit(1);
    }}
}}

static void *{name}_thread(void *unused)
{{
    (void)unused;
    for (uint32_t round = 0; round < 20u; round++) {{
        for (uint32_t k = 0; k < {runs}; k++) {{
            {name}_write(&{name}_model, k);
            {name}_run_checked(&{name}_model);
            {name}_compare(&{name}_model, k);
        }}
        if ({name}_reset(&{name}_model) != EMITC_OK) {{
            exit(1);
        }}
    }}
    return NULL;
}}
"""


def model_code(program: Program, memory: SharedArena) -> str:
    """The driver's part for one model."""
    write, read, at = [], [], 0
    for port in program.inputs:
        write.append(
            f"    fill((unsigned char *){program.name}_input_{port.index}(model), {port.size_bytes}u, "
            f"977u * k + {port.index + 1}u);"
        )
    for port in program.outputs:
        read.append(f"    memcpy(to + {at}, {program.name}_output_{port.index}(model), {port.size_bytes}u);")
        at += port.size_bytes
    return MODEL.format(
        name=program.name, upper=program.upper, together=memory.upper, runs=RUNS, output_bytes=at,
        write="\n".join(write), read="\n".join(read),
    )  # fmt: skip


def run_driver(folder: Path, tiny: Path, memory: SharedArena, body: str) -> str:
    """What the driver prints, built with the sanitizers from freshly compiled packages."""
    programs, files, includes = [], {}, []
    for name in MODELS:
        compiled = compile_model(tiny / f"{name}.tflite")
        compiled.write(folder / name)
        found, folders = sources(folder / name)
        files |= {path.name: str(path) for path in found}
        includes += [f"-I{path}" for path in folders]
        programs.append(compiled.program)
    (folder / memory.header_name).write_text(together_header(memory), encoding="ascii")
    driver = folder / "driver.c"
    driver.write_text(
        DRIVER.format(
            header=memory.header_name,
            upper=memory.upper,
            models="".join(model_code(program, memory) for program in programs),
            alone="\n".join(f"    {program.name}_alone();" for program in programs),
            body=body,
        ),
        encoding="ascii",
    )
    run_compiler(
        [
            "-std=c11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-pthread",
            "-fsanitize=address,undefined", "-fno-sanitize-recover=all", f"-I{folder}", *includes, *files.values(),
            str(driver), "-o", str(folder / "driver"),
        ]
    )  # fmt: skip
    done = subprocess.run([str(folder / "driver")], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr[-2000:]


def programs(tiny: Path) -> list[Program]:
    return [compile_model(tiny / f"{name}.tflite").program for name in MODELS]


START = "\n".join(f"    {name}_start(arena, state);" for name in MODELS)
TURNS = (
    START
    + f"""
    for (uint32_t k = 0; k < {RUNS}u; k++) {{
        spotter_write(&spotter_model, k);
        spotter_run_checked(&spotter_model);
        spotter_compare(&spotter_model, k);
        branches_write(&branches_model, k);
        branches_run_checked(&branches_model);
        branches_compare(&branches_model, k);
    }}"""
)
MIXED = (
    START
    + f"""
    for (uint32_t k = 0; k < {RUNS}u; k++) {{
        spotter_write(&spotter_model, k);
        branches_write(&branches_model, k);
        branches_run_checked(&branches_model);
        spotter_run_checked(&spotter_model);
        branches_compare(&branches_model, k);
        spotter_compare(&spotter_model, k);
    }}"""
)
THREADS = (
    START
    + """
    pthread_t threads[2];
    if (pthread_create(&threads[0], NULL, spotter_thread, NULL) != 0 ||
        pthread_create(&threads[1], NULL, branches_thread, NULL) != 0) {
        return 1;
    }
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);"""
)


@pytest.mark.parametrize(
    ("concurrent", "body"),
    [
        pytest.param(False, TURNS, id="in_turns"),
        pytest.param(True, TURNS, id="concurrent_in_turns"),
        pytest.param(True, MIXED, id="concurrent_interleaved"),
        pytest.param(True, THREADS, id="concurrent_in_threads"),
    ],
)
def test_runs_in_one_arena_equal_runs_alone(tmp_path: Path, tiny: Path, concurrent: bool, body: str) -> None:
    memory = together(programs(tiny), concurrent=concurrent, name="pair")
    assert run_driver(tmp_path, tiny, memory, body) == "equal\n"


def test_interleaving_models_that_take_turns_is_seen_by_the_driver(tmp_path: Path, tiny: Path) -> None:
    memory = together(programs(tiny), concurrent=False, name="pair")
    assert "differs in run" in run_driver(tmp_path, tiny, memory, MIXED)


def test_sizes(tiny: Path) -> None:
    parts = programs(tiny)
    sizes = [program.plan.arena_bytes for program in parts]
    turns, at_once = (together(parts, concurrent=concurrent) for concurrent in (False, True))
    assert turns.arena_bytes == max(sizes)
    assert [share.arena_offset for share in turns.parts] == [0, 0]
    assert at_once.arena_bytes == sum(sizes)
    assert [share.arena_offset for share in at_once.parts] == [0, sizes[0]]
    assert turns.header_name == "spotter_branches_together.h"
    assert turns.upper == "SPOTTER_BRANCHES_TOGETHER"
    assert "TAKING TURNS" in together_header(turns) and "CONCURRENT" not in together_header(turns).split("#ifndef")[0]
    assert "CONCURRENT:" in together_header(at_once)


def test_states_are_apart_in_both_kinds(tiny: Path) -> None:
    from dataclasses import replace

    parts = [replace(program, state_bytes=n) for program, n in zip(programs(tiny), (24, 40), strict=True)]
    for concurrent in (False, True):
        memory = together(parts, concurrent=concurrent)
        assert [share.state_offset for share in memory.parts] == [0, 32]
        assert memory.state_bytes == 80


def test_a_header_of_other_models_does_not_compile(tmp_path: Path, tiny: Path) -> None:
    from dataclasses import replace

    memory = together(programs(tiny), concurrent=False, name="pair")
    first = memory.parts[0].program
    smaller = replace(memory.parts[0], program=replace(first, plan=replace(first.plan, arena_bytes=16)))
    stale = replace(memory, parts=(smaller, *memory.parts[1:]))
    with pytest.raises(CannotCompile) as caught:
        run_driver(tmp_path, tiny, stale, TURNS)
    assert "pair_together.h was made for another spotter.h" in caught.value.why


def test_refusals(tiny: Path) -> None:
    spotter, branches = programs(tiny)
    with pytest.raises(EmitcError, match="there is one model only"):
        together([spotter], concurrent=False)
    with pytest.raises(EmitcError, match="two models are named spotter"):
        together([spotter, branches, spotter], concurrent=True)
    with pytest.raises(EmitcError, match="2nd is no name for the header"):
        together([spotter, branches], concurrent=True, name="2nd")
