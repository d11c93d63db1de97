"""The options of a compilation: their defaults, their JSON for the manifest, and their text for the command line."""

from pathlib import Path
from typing import Any

from emitc.backends import kernel_choices
from emitc.backends import options as backend_options
from emitc.emit.licence import is_expression
from emitc.emit.package import PACKAGES
from emitc.emit.package_kinds import KINDS
from emitc.errors import EmitcError, Where, shown, unknown_choice
from emitc.ir import Shape
from emitc.passes import LATE_PASSES, PASSES
from emitc.passes.interface import INTERFACES
from emitc.planner.region_assignment import Region
from emitc.program.c_names import is_model_name
from emitc.records import dataclass, field, fields
from emitc.schedule.memory_regions import check_regions
from emitc.schedule.search import SMALLEST, TECHNIQUES
from emitc.target import load_target

BUILT_IN, EXTERNAL = WEIGHTS = ("built-in", "external")
"""Where the constants of layers lie that training changes: in the C, or in a file that it is given when it starts."""
MOST_SELF_TESTS = 64
MOST_CYCLES_PER_BYTE = 10_000
_RARE = (
    *("regions", "places", "stage_weights", "split_weights", "plugins", "variants", "input_rows", "flash_budget"),
    *("self_test", "self_test_vectors", "profile", "profile_layers", "labels", "cpp", "model_licence"),
    *("steps", "max_step_cycles", "weights", "load_ahead"),
)
"""Options that the manifest names only where they are given."""
_FLAGS = ("input_rows", "split_weights", "profile", "profile_layers")
"""Those of them that are only ever true."""


@dataclass(frozen=True, slots=True)
class Options:
    """What `emitc compile` takes, with its defaults.

    name: C name, "" for one made from the file name. shapes: open dimensions by tensor name. disabled: passes and
    memory techniques to skip.
    ram_budget: largest arena in bytes, None for any, "min" for the smallest. flash_budget: most bytes of
    constants, None for what the default spends. cpu_only: operators, by type or index, that
    no accelerator gets. expect_partition: file with a partition map that must come out. backends: options of the backends, by
    name. regions: memories that each get an arena, none for a single arena; places: pairs of a tensor, by its name or that of
    its buffer, or "weights", and the region that it is to lie in. stage_weights: the region that weights are copied to before
    their layer runs, "" for none; load_ahead: cycles in which a DMA copies one byte of them while other layers run, 0 where the
    core copies them. variants: pairs of a node's index and the variant of
    emitc's own kernels that it is to get. plugins: Python files with operators of the user's own. input_rows: the model asks for
    the rows of its input while it runs. split_weights: constants have a file of their own. self_test: stored inputs of the
    function that tests the package on the device, 0 for no such function; self_test_vectors: the .npz file that they are from,
    None for random ones. profile: the package has emitc_profile.h; profile_layers: each layer has a
    record of its own, however short it is. labels: text file with the names of classes, "model" for
    those in the model file, "numbers" for functions without names, "" for none. cpp: the package has a C++ class.
    model_licence: SPDX expression of the model. steps: the model has functions
    that run one inference in steps; max_step_cycles: that a step is to take at most, by the estimate, which asks for steps too.
    weights: one of WEIGHTS.
    """

    name: str = ""
    target: str = "generic32"
    kernels: str = "portable"
    optimize: str = "speed"
    io: str = "keep"
    package: str = "plain"
    ram_budget: int | str | None = None
    flash_budget: int | None = None
    fallback: str = "cpu"
    shapes: dict[str, Shape] = field(default_factory=dict)
    disabled: frozenset[str] = frozenset()
    cpu_only: tuple[str, ...] = ()
    expect_partition: Path | None = None
    backends: dict[str, str] = field(default_factory=dict)
    regions: tuple[Region, ...] = ()
    places: tuple[tuple[str, str], ...] = ()
    stage_weights: str = ""
    load_ahead: float = 0.0
    variants: tuple[tuple[int, str], ...] = ()
    plugins: tuple[Path, ...] = ()
    input_rows: bool = False
    split_weights: bool = False
    profile: bool = False
    profile_layers: bool = False
    self_test: int = 0
    self_test_vectors: Path | None = None
    labels: str = ""
    cpp: bool = False
    model_licence: str = ""
    steps: bool = False
    max_step_cycles: int | None = None
    weights: str = BUILT_IN

    @property
    def in_steps(self) -> bool:
        return self.steps or self.max_step_cycles is not None

    @property
    def arena_budget(self) -> int | None:
        """The budget as the arrangement of layers takes it."""
        return SMALLEST if isinstance(self.ram_budget, str) else self.ram_budget

    @property
    def has_example(self) -> bool:
        """Whether the package has an example that repeats a run of the model. Its init takes no weights of another file."""
        return KINDS[self.package].has_example and self.weights == BUILT_IN

    def to_json(self) -> dict[str, Any]:
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _RARE}
        plain |= {name: True for name in _FLAGS if getattr(self, name)}
        if self.self_test:
            vectors = self.self_test_vectors
            plain["self_test"] = {"inputs": self.self_test, "vectors": vectors.name if vectors else None}
        plain |= {"labels": Path(self.labels).name} if self.labels else {}
        plain |= {"cpp": True} if self.cpp else {}
        plain |= {"model_licence": self.model_licence} if self.model_licence else {}
        if self.in_steps:
            plain |= {"steps": True, "max_step_cycles": self.max_step_cycles}
        plain |= {"weights": self.weights} if self.weights != BUILT_IN else {}
        plain |= {"flash_budget": self.flash_budget} if self.flash_budget is not None else {}
        plain |= {"variants": [list(pair) for pair in self.variants]} if self.variants else {}
        if self.regions:
            plain["regions"] = [
                {"name": r.name, "bytes": r.size_bytes, "cost": r.cost}
                | ({"cache": r.cache_bytes} if r.cache_bytes else {})
                for r in self.regions
            ]
            plain["places"] = [list(place) for place in self.places]
        plain |= {"stage_weights": self.stage_weights} if self.stage_weights else {}
        plain |= {"load_ahead": self.load_ahead} if self.load_ahead else {}
        return plain | {
            "shapes": {k: list(v) for k, v in self.shapes.items()},
            "disabled": sorted(self.disabled),
            "cpu_only": list(self.cpu_only),
            "expect_partition": self.expect_partition.name if self.expect_partition else None,
            "backends": self._stated(),
        }

    def _stated(self) -> dict[str, str]:
        """The options of backends that differ from their defaults; of a path the name alone, which is the same everywhere."""
        known = {option.name: option for option in backend_options()}
        return {
            name: Path(value).name if known[name].metavar == "PATH" else value
            for name, value in sorted(self.backends.items())
            if value != known[name].default
        }

    def arguments(self) -> str:
        """The options that differ from the defaults as command-line text, with a leading blank."""
        plain = ("name", "target", "kernels", "optimize", "io", "package", "ram_budget", "flash_budget", "fallback")
        values = {name: getattr(self, name) for name in plain if getattr(self, name) != getattr(Options(), name)}
        parts = [f"--{name.replace('_', '-')} {value}" for name, value in values.items()]
        parts += [f"--{name.replace('_', '-')}" for name in _FLAGS if getattr(self, name)]
        parts += [f"--labels {Path(self.labels).name}"] if self.labels else []
        parts += ["--cpp"] if self.cpp else []
        parts += [f'--model-licence "{self.model_licence}"'] if self.model_licence else []
        parts += [f"--self-test {self.self_test}"] if self.self_test else []
        parts += [f"--self-test-vectors {self.self_test_vectors.name}"] if self.self_test_vectors else []
        parts += ["--steps"] if self.steps else []
        parts += [f"--max-step-cycles {self.max_step_cycles}"] if self.max_step_cycles is not None else []
        parts += [f"--weights {self.weights}"] if self.weights != BUILT_IN else []
        parts += [f"--shape {name}={','.join(map(str, shape))}" for name, shape in sorted(self.shapes.items())]
        parts += [f"--without {name}" for name in sorted(self.disabled)]
        parts += [f"--cpu-only {what}" for what in self.cpu_only]
        parts += [f"--{name} {value}".removesuffix(" yes") for name, value in self._stated().items()]
        parts += ["--regions " + ",".join(map(str, self.regions))] if self.regions else []
        parts += [f"--place {what}={region}" for what, region in self.places]
        parts += [f"--stage-weights {self.stage_weights}"] if self.stage_weights else []
        parts += [f"--load-ahead {self.load_ahead:g}"] if self.load_ahead else []
        parts += [f"--kernel op{index}={variant}" for index, variant in self.variants]
        parts += [f"--plugin {Path(path).name}" for path in self.plugins]
        return "".join(f" {part}" for part in parts)


def _choice(value: str, choices: tuple[str, ...], option: str) -> None:
    if value not in choices:
        raise unknown_choice(option, value, choices)


def _check_external(options: Options) -> None:
    """Refuses what asks for weights in the C, where they are in a file of their own."""
    no_weights = "it leaves no weights in the C that could have a file of their own there"
    excluded = {
        "--split-weights": (options.split_weights, no_weights),
        f"--package {options.package}": (not KINDS[options.package].weights, "its wrapper gives init no weights"),
    }
    for option, (asked, why) in excluded.items():
        if asked:
            what = f"--weights external and {option} exclude each other"
            raise EmitcError(what, Where(option=option), why, "leave one of the two out")


def check_options(options: Options) -> None:
    """Refuses options that do not exist or have no code."""
    load_target(options.target)
    _choice(options.package, PACKAGES, "--package")
    _choice(options.io, INTERFACES, "--io")
    _choice(options.optimize, ("speed", "size"), "--optimize")
    _choice(options.kernels, kernel_choices(), "--kernels")
    for option in backend_options():
        if option.choices and (value := options.backends.get(option.name)):
            _choice(value, option.choices, f"--{option.name}")
    _choice(options.fallback, ("cpu", "fail"), "--fallback")
    if isinstance(options.ram_budget, str):
        _choice(options.ram_budget, ("min",), "--ram-budget")
    for name in sorted(options.disabled):
        _choice(name, (*(n for n, _ in (*PASSES, *LATE_PASSES)), *TECHNIQUES), "--without")
    if options.max_step_cycles is not None and options.max_step_cycles < 1:
        where, why = Where(option="--max-step-cycles"), f"{options.max_step_cycles} is less than one cycle"
        raise EmitcError("a step cannot be that short", where, why, "give a positive number, such as 100000")
    _choice(options.weights, WEIGHTS, "--weights")
    if options.weights == EXTERNAL:
        _check_external(options)
    check_regions(options.regions, options.places, options.stage_weights)
    _check_load_ahead(options)
    _check_self_test(options)
    if options.profile_layers and not options.profile:
        where, why = Where(option="--profile-layers"), "it says what a profile records"
        raise EmitcError("--profile-layers has no effect", where, why, "add --profile, or leave it out")
    if options.model_licence and not is_expression(options.model_licence):
        why = "it is no SPDX expression"
        hint = "such as MIT, or CC-BY-4.0, or LicenseRef-Ours; see https://spdx.org/licenses"
        raise EmitcError(f"{shown(options.model_licence)} is no licence", Where(option="--model-licence"), why, hint)
    if options.name and not is_model_name(options.name):
        why = "it must be a C identifier of at most 63 characters, not a keyword and not a standard header"
        hint = "use letters, digits and single underscores"
        raise EmitcError(f"{options.name} is no name for a model", Where(option="--name"), why, hint)


def _check_load_ahead(options: Options) -> None:
    """Refuses transfers of weights without a region that they are copied to, and a speed that is none."""
    where = Where(option=f"--load-ahead {options.load_ahead:g}")
    if options.load_ahead and not options.stage_weights:
        why, hint = "it says how fast a DMA copies weights to the region of --stage-weights", "name that region too"
        raise EmitcError("--load-ahead has no effect", where, why, hint)
    if options.load_ahead and not 0 < options.load_ahead <= MOST_CYCLES_PER_BYTE:
        why = f"it is the cycles that a DMA takes to copy a byte, over 0 and at most {MOST_CYCLES_PER_BYTE}"
        raise EmitcError(f"{options.load_ahead:g} is no speed of a DMA", where, why, "such as 2")


def _check_self_test(options: Options) -> None:
    where = Where(option="--self-test")
    if not 0 <= options.self_test <= MOST_SELF_TESTS:
        why, hint = f"there may be 1 to {MOST_SELF_TESTS}", "take fewer: each is stored in flash"
        raise EmitcError(f"{options.self_test} is no number of stored inputs", where, why, hint)
    if options.self_test_vectors is not None and not options.self_test:
        why, hint = "they are the inputs of the self test", "--self-test N, or leave --self-test-vectors out"
        raise EmitcError("--self-test-vectors has no effect", where, why, hint)
