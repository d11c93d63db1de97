"""The fewest activations of 16 bits with which a quantized model keeps its accuracy."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from emitc.calibrate.calibrate import FloatModel
from emitc.calibrate.precision import order_of_raising
from emitc.calibrate.settings import QuantizeSettings
from emitc.errors import CannotCompile, Where
from emitc.evaluate.dataset import Preparation
from emitc.evaluate.quality import tensor_ratios, tested


@dataclass
class MixedPrecision:
    """A search with a labelled test. max_drop: of the accuracy against the float model, as a share of 1.

    trail: what was tried, as pairs of the number of operators with 16 bits and the drop.
    """

    test: Path
    preparation: Preparation
    max_drop: float
    trail: list[tuple[int, float]] = field(default_factory=list)

    def choose(self, model: FloatModel, settings: QuantizeSettings) -> QuantizeSettings:
        """The settings with operators added to `int16`, none where the model is good enough without.

        Operators are raised in the order of `order_of_raising`. Their number doubles until the drop is met, and is then halved
        between the last two. Raises CannotCompile where 16 bits everywhere are not enough, and what `evaluate` raises.
        """
        if self._meets(model, settings):
            return settings
        ratios = tensor_ratios(model.model, model.quantized(settings), model.samples)
        already_set = (*settings.int16, *settings.excluded)
        order = [name for name in order_of_raising(model.message, ratios) if name not in already_set]

        def raised(count: int) -> QuantizeSettings:
            return replace(settings, int16=(*settings.int16, *order[:count]))

        low, high = 0, 1
        while high < len(order) and not self._meets(model, raised(high)):
            low, high = high, 2 * high
        high = min(high, len(order))
        if high == len(order) and not (order and self._meets(model, raised(high))):
            least = min(drop for _, drop in self.trail)
            what = "no mix of 8 and 16 bits keeps the accuracy"
            why = f"the least drop of {len(self.trail)} mixes is {least:.4f}, and --max-drop allows {self.max_drop:g}"
            hint = "more calibration samples, another --method, or --exclude for the operators with the most noise"
            raise CannotCompile(what, Where(option="--auto-mixed"), why, hint)
        while high - low > 1:
            middle = (low + high) // 2
            if self._meets(model, raised(middle)):
                high = middle
            else:
                low = middle
        return raised(high)

    def _meets(self, model: FloatModel, settings: QuantizeSettings) -> bool:
        evaluation, _ = tested(model.path, model.quantized(settings), self.test, self.preparation)
        assert evaluation.drop is not None
        self.trail.append((len(settings.int16), evaluation.drop))
        return evaluation.drop <= self.max_drop
