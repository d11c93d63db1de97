"""Which layers get kernels whose constants take more flash than the model's own weights.

Such kernels are faster. Those that save the most cycles for a byte come first, until the budget is spent.
"""

from emitc.backends.partition import Partition

DEFAULT_SHARE = 0.05
"""Of the constants of all layers: what faster kernels may add to them by default."""
ANY = 1 << 62
"""More scratch than any kernel needs."""


def spend_flash(partition: Partition, constant_bytes: int, budget: int | None, *, small: bool) -> Partition:
    """The partition with faster kernels for some nodes.

    constant_bytes: of its layers. budget: the value of `--flash-budget`, which counts them too. small: code is to be small, so
    that only a budget spends anything.
    """
    default = 0 if small else int(DEFAULT_SHARE * constant_bytes)
    left = default if budget is None else budget - constant_bytes
    offers = []
    for index, choice in partition.choices.items():
        now, faster = (choice.within(ANY, flash).candidate for flash in (0, max(left, 0)))
        if faster.flash_bytes:
            offers.append(((now.cost - faster.cost) / faster.flash_bytes, -index, faster.flash_bytes))
    allowed = {}
    for _, index, size in sorted(offers, reverse=True):
        if size <= left:
            allowed[-index] = size
            left -= size
    return partition.within({}, allowed) if allowed else partition
