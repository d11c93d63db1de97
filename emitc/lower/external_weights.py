"""Moves what training changes from a program's C to the structure of its weights: arrays of values, and numbers of scales.

What leads to an address stays in the C: shapes, strides, indices, lengths of loops. A file of weights with any content can
therefore change results, but not where the code reads and writes. Arrays and numbers that are not listed here stay in the C too.
Weights with numbers between them that lead to an address are marked as a `Stream`, which the code checks before it takes a file.
"""

from collections import Counter
from collections.abc import Callable, Mapping

from emitc.layer import Param, Table
from emitc.program import Block, Constant, Move, Operand, Program, RowCall, RowSegment, Step
from emitc.program.stepping import SteppedStage
from emitc.program.weights import ARGUMENT, STORABLE, ExternalWeights, Member, bytes_of, stream_of
from emitc.records import dataclass, field, replace

ARRAYS = frozenset({
    "b", "b_zero", "bias", "bias_inside", "centred", "exponentials", "factor", "feature", "fill", "left_shift",
    "multiplier", "padding", "padding_byte", "padding_pixel", "r", "r_scale", "r_sums", "records", "right", "scale",
    "shift", "start", "table", "time", "w", "w_scale", "w_sums", "weight_zero", "weights", "zeros",
})  # fmt: skip
"""Roles of arrays whose elements are operands of the arithmetic."""
NUMBERS = frozenset({
    "a_multiplier", "a_offset", "a_scale", "a_shift", "a_weight", "add_q31", "add_shift", "b_multiplier", "b_offset",
    "b_scale", "b_shift", "b_weight", "bias", "clamp_high", "clamp_low", "factor", "highest",
    "input_offset", "keep_q31", "keep_shift", "large_factor", "left_shift", "lowest", "memory_zero", "multiplier",
    "output_offset", "output_q31", "output_shift", "output_zero", "padding_value", "right", "scale", "score_high",
    "score_low", "score_q31", "score_shift", "score_zero", "shift", "slope", "slope_shift", "small_multiplier",
    "small_right", "small_sign", "sum_offset", "weight_scale", "weights_zero", "x_scale", "y_inverse", "y_scale",
    "zero_point",
})  # fmt: skip
"""Names of parameters that are operands of the arithmetic."""
_FIXED = ("signal/", "detection/", "resize/", "control_flow/", "npu/", "state/")
"""Folders of templates whose operators are not trained, or whose arrays lead to addresses."""
_LOOKED_UP = "exponential"
"""An array whose index follows from the numbers of its layer, which therefore stay in the C."""
_COUNTED, _COUNT, _LENGTH = "exponentials", "steps", 256
"""An array whose number of elements follows a scale, and the parameter that says it. Its index is the difference of two int8
values. The array gets zeros up to this length, and the parameter a value that holds for every scale: what a kernel adds for a
zero is nothing.
"""
_WEIGHTS = "weights"
"""The array of a layer whose values may lead to addresses, in kernels that have such weights."""
_WORD_BYTES = 4
"""A structure of numbers has members of at most that size, whose alignment all compilers agree on."""
_OPERANDS = ("int8_t", "uint8_t", "int16_t", "float")
"""C types of constant operands that are stored: an operand that may be an index has another one."""


def may_be_stored(table: Table) -> bool:
    """Whether an array of that role may go to the weights, whatever its layer; equal ones must then stay two."""
    return table.c_type in STORABLE and (table.role in ARRAYS or _is_operand(table.role, table))


def is_stored(template: str, table: Table) -> bool:
    """Whether an array of a layer goes to the weights."""
    fixed = template.startswith(_FIXED) or "/" not in template
    return not fixed and table.role in ARRAYS and table.c_type in STORABLE


def _is_operand(role: str, table: Table) -> bool:
    return role.startswith("operand_") and table.c_type in _OPERANDS


def with_external_weights(program: Program, members_of: Callable[[Step], frozenset[str]]) -> Program:
    """The program with the values of training in the structure of its weights.

    members_of: the names of the parameters that a step's kernel reads.
    """
    layers = Counter(step.kernel for step in program.every_step)
    inside: dict[str, frozenset[str]] = {}
    for step in program.every_step:
        roles = _inside(step, only=layers[step.kernel] == 1)
        inside[step.kernel] = inside.get(step.kernel, roles) & roles
    mover = _Mover(f"{program.name}_weights", members_of, inside)
    moved = mover.program(program)
    states = tuple(
        slot
        if slot.initial
        else replace(slot, fill_text=mover.number(f"{slot.name.lower()}_fill", "uint8_t", slot.fill))
        for slot in program.states
    )
    for side, ports in (("input", program.inputs), ("output", program.outputs)):
        for port in ports:
            if port.scale is not None and port.zero_point is not None:
                mover.number(f"{side}_{port.index}_scale", "float", port.scale)
                mover.number(f"{side}_{port.index}_zero_point", "int32_t", port.zero_point)
    if not mover.members:  # C has no empty structures
        mover.number("nothing", "uint32_t", 0, "the model has no weights")
    return replace(moved, states=states, external=ExternalWeights(mover.name, tuple(mover.members)))


def with_external_test(program: Program) -> Program:
    """The program with the inputs and results of its self test in the external weights, so that other weights bring theirs."""
    test, external = program.self_test, program.external
    assert test is not None and external is not None
    tables = [constant.table for constant in test.inputs]
    crcs = tuple(check.crcs[case] for case in range(test.cases) for check in test.checks)
    what = "CRC32 of each checked output, by stored input"
    tables.append(Table("self_test_expected", "uint32_t", crcs, what))
    members = tuple(Member(t.role, t.c_type, tuple(t.values), len(t.values), t.comment) for t in tables)
    external = replace(external, members=(*external.members, *members))
    return replace(program, external=external, self_test=replace(test, external=True))


@dataclass
class _Mover:
    """Collects the members of the structure in the order of the layers.

    inside: for each kernel the roles of arrays that are members of its structure of numbers. kernels: the numbers of its layers.
    """

    name: str
    members_of: Callable[[Step], frozenset[str]]
    inside: Mapping[str, frozenset[str]]
    members: list[Member] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    kernels: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def leading(self) -> str:
        """The declaration of the pointer to the weights as a function's first parameter."""
        return f"const struct {self.name} *{ARGUMENT}, "

    def number(self, name: str, c_type: str, value: float, comment: str = "") -> str:
        """Adds a number; returns the C expression of it."""
        self.members.append(Member(name, c_type, (value,), 0, comment))
        return f"{ARGUMENT}->{name}"

    def program(self, program: Program) -> Program:
        """A program and those inside of its operators."""
        steps = {step.name: self._step(step) for step in program.steps}
        schedule = tuple(self._stage(stage, steps) for stage in program.schedule)
        reads = any(step.leading or _reads_in_call(step) for step in steps.values())
        leading = self.leading if reads else ""
        stepping = program.stepping and replace(
            program.stepping, stages=tuple(self._stepped(stage, steps) for stage in program.stepping.stages)
        )
        return replace(program, steps=tuple(steps.values()), schedule=schedule, leading=leading, stepping=stepping)

    def _stage(self, stage: Step | Move | RowSegment, steps: dict[str, Step]) -> Step | Move | RowSegment:
        if isinstance(stage, Move):
            return stage
        if isinstance(stage, RowSegment):
            calls: tuple[RowCall, ...] = tuple(replace(call, step=steps[call.step.name]) for call in stage.calls)
            return replace(stage, calls=calls)
        return steps[stage.name]

    def _stepped(self, stage: SteppedStage, steps: dict[str, Step]) -> SteppedStage:
        split = stage.split and replace(stage.split, step=steps[stage.split.step.name])
        return replace(stage, stage=self._stage(stage.stage, steps), split=split)

    def _step(self, step: Step) -> Step:
        parts = tuple(self.program(part) for part in step.parts)
        roles = {name: role for role, name in step.table_names.items()}
        roles |= {staged.constant: staged.name.removeprefix("staged_") for staged in step.staged}
        stored = self._stored(step)
        together = self._together(step, stored)
        members = self.inside[step.kernel] - {param.name for param in stored} if together else frozenset()
        inside = {c.name: c.table for c in step.constants if roles.get(c.name) in members}
        kept = tuple(c for c in step.constants if c.name not in inside and not self._array(step, c, roles))
        numbers = self._numbers(step, stored, {roles[name]: table for name, table in inside.items()}, together)
        self.texts |= {name: f"{ARGUMENT}->{numbers}.{roles[name]}" for name in inside}
        tables = {role: self.texts.get(name, name) for role, name in step.table_names.items()}
        uses = stored or tables != step.table_names or any(part.leading for part in parts)
        return replace(
            step,
            parts=parts,
            constants=kept,
            table_names=tables,
            staged=tuple(replace(s, constant=self.texts.get(s.constant, s.constant)) for s in step.staged),
            inputs=tuple(map(self._operand, step.inputs)),
            params=_lengthened(step),
            stored=tuple(param.name for param in stored),
            numbers=numbers,
            leading=(self.leading if uses else "") + step.leading,
        )

    def _array(self, step: Step, constant: Constant, roles: dict[str, str]) -> bool:
        """Whether an array is stored; then it is a member now."""
        table = constant.table
        role = roles.get(constant.name, table.role)
        if not (is_stored(step.template, replace(table, role=role)) or _is_operand(table.role, table)):
            return False
        values = table.values
        stream = stream_of(step.spec, step.params) if role == _WEIGHTS else None
        length = _LENGTH if role == _COUNTED else stream.room_bytes if stream else len(values)
        values = tuple(values) + (0,) * (length - len(values))
        member = Member(constant.name, table.c_type, values, len(values), table.comment, table.alignment, stream)
        self.members.append(member)
        self.texts[constant.name] = f"{ARGUMENT}->{constant.name}"
        return True

    def _stored(self, step: Step) -> tuple[Param, ...]:
        """The parameters of a step that are stored."""
        if step.template.startswith(_FIXED) or "/" not in step.template or _LOOKED_UP in step.table_names:
            return ()
        read = self.members_of(step)
        return tuple(p for p in step.params if p.name in read and p.c_type in STORABLE and p.name in NUMBERS)

    def _together(self, step: Step, stored: tuple[Param, ...]) -> bool:
        """Whether the numbers of a step are a structure, of which its kernel gets the address."""
        names = tuple(param.name for param in stored)
        alike = self.kernels.setdefault(step.kernel, names) == names
        return bool(names) and alike and all(bytes_of(param.c_type) <= _WORD_BYTES for param in stored)

    def _numbers(self, step: Step, stored: tuple[Param, ...], arrays: Mapping[str, Table], together: bool) -> str:
        """Adds the numbers of a step, and those of its arrays that lie with them by role; returns the structure, or ""."""
        variable = f"{step.name}_numbers" if together else ""
        prefix, struct = (f"{variable}.", f"emitc_{step.kernel}_numbers") if together else (f"{step.name}_", "")
        members = [Member(prefix + p.name, p.c_type, (p.value,), 0, p.comment, struct=struct) for p in stored]
        members += [
            Member(prefix + role, array.c_type, tuple(array.values), len(array.values), array.comment, struct=struct)
            for role, array in arrays.items()
        ]
        # So there is no gap between members of one structure.
        self.members += sorted(members, key=lambda member: -member.element_bytes) if together else members
        return variable

    def _operand(self, operand: Operand) -> Operand:
        address = operand.address
        if address.block is not Block.CONSTANT:
            return operand
        return replace(operand, address=replace(address, variable=self.texts.get(address.variable, address.variable)))


def _inside(step: Step, *, only: bool) -> frozenset[str]:
    """The roles of a layer's arrays that can be members of its kernel's structure of numbers.

    All layers of a kernel share that structure, so that it has no arrays of different lengths. only: whether the kernel has no
    other layer. Its arrays then lie at fixed distances, and one register holds the address of all of them.
    """
    tables = {constant.name: constant.table for constant in step.constants}
    for staged in step.staged:
        tables.pop(staged.constant, None)
    return frozenset(
        role
        for role, table in ((role, tables[name]) for role, name in step.table_names.items() if name in tables)
        if (only or len(table.values) == 1) and not table.alignment and role not in (_WEIGHTS, _COUNTED)
        if is_stored(step.template, replace(table, role=role)) and bytes_of(table.c_type) <= _WORD_BYTES
    )


def _reads_in_call(step: Step) -> bool:
    """Whether the call of a step's function, or a copy before it, names the weights."""
    operands = (operand.address.variable for operand in step.inputs)
    copies = (staged.constant for staged in step.staged)
    return any(text.startswith(f"{ARGUMENT}->") for text in (*operands, *copies))


def _lengthened(step: Step) -> tuple[Param, ...]:
    """The parameters of a step whose array of exponentials is longer than its scale asks for."""
    length = next((len(c.table.values) for c in step.constants if c.table.role == _COUNTED), _LENGTH)
    longer = _LENGTH - length
    return tuple(replace(param, value=param.value + longer) if param.name == _COUNT else param for param in step.params)
