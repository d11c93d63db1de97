"""What `emitc verify` found, as a value."""

from typing import Any

from emitc.program.members import members
from emitc.records import dataclass
from emitc.verify.layers import Divergence
from emitc.verify.operator_checks import Group
from emitc.verify.tolerances import finite

NPU_RULE = "npu"
COMMANDS_RULE = "npu-commands"
_STATED = (
    "reference samples elements differing max_abs_diff rule tolerance tolerated given_elements given_differing given_cases "
    "numpy_samples numpy_differing layers_checked first_divergence arena_planned arena_observed sanitized groups unjudged "
    "memory_errors"
)
"""Fields that the JSON has in any case, in its order."""


@dataclass(frozen=True, slots=True)
class ArenaUse:
    """The arena of one of several regions: bytes planned, observed, and filled as `Proof` has them."""

    region: str
    planned: int
    observed: int
    filled: int

    def to_json(self) -> dict[str, Any]:
        return members(self, "region planned observed")


@dataclass(frozen=True, slots=True)
class Proof:
    """What `emitc verify` found.

    differing: elements of the outputs that break their rule.
    rule: "exact"; "tolerance" where an output is a float32 tensor that is computed from floats; "groups" where operators
        decide one by one, each on the engine's own inputs (`operator_checks`), with the numpy reference on every sample; "npu"
        where an accelerator rounds otherwise than the model, so that the numpy reference of its arithmetic decides and
        `differing` counts deviations from the engine; "npu-commands" where vela has compiled the file and its host model decides.
    tolerance: the factor of `tolerances`. tolerated: elements whose bits differ within it.
    groups: the operators by type: for a QDQ model, for floats outside of the tolerance, and for a TFLite model that LiteRT
        alone runs and rounds otherwise than TFLite Micro.
    unjudged: operators that cannot be compared by themselves. The outputs decide too if there are any.
    arena_filled: bytes that a run is sure to touch; less than arena_planned if a library need not use all of its working memory.
    arenas: the bytes of every region if there are several. The other numbers are then sums.
    no_engine: operators of plugins for which no engine runs the model, and what the engines said; or one entry if no engine is
        installed. The numpy references of all operators decide then.
    given_elements, given_differing: how many of `elements` and of `differing` are from outputs that the vectors state.
    given_cases: the cases of the vectors whose stated outputs differ.
    disputes: operators on which TFLite Micro and LiteRT differ, with the number of elements, of a model that is run operator by
        operator. TFLite Micro decides about them.
    numpy_alone: operators decide because the outputs agree with the engine's and not with the numpy references'.
    """

    reference: str
    samples: int
    elements: int
    differing: int
    max_abs_diff: float
    numpy_samples: int
    numpy_differing: int
    layers_checked: int
    first_divergence: Divergence | None
    arena_planned: int
    arena_observed: int
    sanitized: bool
    memory_errors: tuple[str, ...] = ()
    rule: str = "exact"
    tolerance: float = 0.0
    tolerated: int = 0
    groups: tuple[Group, ...] = ()
    arena_filled: int = 0
    arenas: tuple[ArenaUse, ...] = ()
    no_engine: tuple[str, ...] = ()
    unjudged: int = 0
    given_elements: int = 0
    given_differing: int = 0
    given_cases: tuple[int, ...] = ()
    disputes: tuple[str, ...] = ()
    numpy_alone: bool = False

    @property
    def match(self) -> bool:
        """Whether everything agrees and the arena is used as planned."""
        used = self.arenas or (ArenaUse("", self.arena_planned, self.arena_observed, self.arena_filled),)
        clean = not self.memory_errors and all(region.filled <= region.observed <= region.planned for region in used)
        if self.rule == NPU_RULE:
            return self.numpy_differing == 0 and clean
        if self.groups:
            judged = self.unjudged == 0 or self.differing == 0
            return self.numpy_differing == 0 and all(group.holds for group in self.groups) and judged and clean
        return self.differing == 0 and self.numpy_differing == 0 and self.first_divergence is None and clean

    @property
    def rounding(self) -> str:
        """Why the operators of a model that LiteRT runs decide one by one; "" where they do not."""
        if not self.groups or self.reference != "litert":
            return ""
        disputed = sorted({group.op_type for group in self.groups if group.kind == "word"})
        if disputed:
            rounded = f"LiteRT rounds {' and '.join(disputed)} otherwise than TFLite Micro"
            return f"{rounded}, which does not run this model and whose rule the C follows"
        if self.numpy_alone:
            return "the numpy references round floats otherwise than the C, and later layers magnify the differences"
        return "layers quantize floats while they run, where the last bit of an exponential may become a step"

    def to_json(self) -> dict[str, Any]:
        operators = (
            {"no_engine": {"operators": self.no_engine[:-1], "why": self.no_engine[-1]}} if self.no_engine else {}
        )
        return {
            **members(self, _STATED),
            "max_abs_diff": finite(self.max_abs_diff),
            "first_divergence": self.first_divergence.to_json() if self.first_divergence else None,
            "groups": [group.to_json() for group in self.groups],
            "match": self.match,
            **({"disputes": list(self.disputes)} if self.disputes else {}),
            **({"arenas": [use.to_json() for use in self.arenas]} if self.arenas else {}),
            **operators,
        }
