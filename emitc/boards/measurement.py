"""A result of a board with what it is of: the model, its file, the target and the options."""

from html import escape
from typing import Any

from emitc.boards.cycle_model import StageWork
from emitc.boards.result import RunResult
from emitc.compiled import Compiled
from emitc.program.members import members
from emitc.records import dataclass, fields, replace


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Measurement(RunResult):
    """A proof and measurement on a board, as `emitc run` prints it.

    model: C name. model_file, model_sha256: of the file that was compiled. target: core that the code is for. options:
    those that differ from the defaults, as text of a command line.
    """

    model: str
    model_file: str
    model_sha256: str
    target: str
    options: str

    @property
    def milliseconds(self) -> float | None:
        """Of one call at the board's clock, estimated by the timing of its core; None where that is not known."""
        estimate = self.estimate_for or self.estimate
        return estimate.milliseconds if estimate is not None else None

    def as_json(self) -> dict[str, Any]:
        return members(self, "model model_file model_sha256 target options") | RunResult.as_json(self)

    def _figures(self) -> tuple[tuple[str, object], ...]:
        """What a line and a notebook show."""
        time = self.milliseconds
        return (
            (self.unit, self.count),
            ("ms, estimated", None if time is None else round(time, 3)),
            ("arena bytes", self.arena_bytes),
            ("flash bytes of the model", self.model_flash_bytes),
            ("stack bytes", self.stack_bytes),
        )

    def __repr__(self) -> str:
        known = ", ".join(f"{value} {what}" for what, value in self._figures() if value is not None)
        return f"<Measurement of {self.model} on {self.board}: {'MATCH' if self.match else 'MISMATCH'}, {known}>"

    def _repr_html_(self) -> str:
        rows = [("match", self.match), *((what, value) for what, value in self._figures() if value is not None)]
        title = f"{self.model} on {self.board}, {self.target}"
        layers = [(f"op {layer.index} {layer.op}", layer.count) for layer in self.layers or ()]
        return html_table(title, ("", "value"), rows) + (html_table("", ("layer", self.unit), layers) if layers else "")


def measurement(compiled: Compiled, result: RunResult, reference: str = "") -> Measurement:
    """The result of a compiled model with the model in it. reference: the engine of the expected outputs."""
    origin = compiled.program.origin
    values = {field.name: getattr(result, field.name) for field in fields(RunResult)}
    if result.estimate is not None:
        values["estimate"] = replace(result.estimate, stages=stages_of(compiled))
    return Measurement(
        **values | {"reference": reference or result.reference},
        model=compiled.program.name,
        model_file=origin.model_file,
        model_sha256=origin.sha256,
        target=origin.target,
        options=origin.options.strip(),
    )


def stages_of(compiled: Compiled) -> tuple[StageWork, ...]:
    """The stages of a program whose weights the application copies while layers run; none for any other one."""
    transfers = compiled.program.transfers
    if transfers is None:
        return ()
    costs = {assignment.index: assignment.cost for assignment in compiled.partition.assignments}
    cycles = [sum(costs.get(step.index, 0.0) for step in stage.steps) for stage in transfers.stages]
    loads = [
        sum(compiled.weight_loads(step.index) for step in stage.steps if not step.staged) for stage in transfers.stages
    ]
    return tuple(
        StageWork(
            here / (sum(cycles) or 1.0),
            loaded / (sum(loads) or 1),
            tuple(staged.size_bytes for staged in stage.late),
            stage.waits,
            stage.left,
            tuple(staged.size_bytes for staged in stage.early),
        )
        for stage, here, loaded in zip(transfers.stages, cycles, loads, strict=True)
    )


def html_table(title: str, columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    """A table of HTML; every text in it is escaped."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    caption = f"<caption>{escape(title)}</caption>" if title else ""
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
