"""ellipsis_mask and new_axis_mask of STRIDED_SLICE: a list of positions as one for every dimension of the input.

A set bit of ellipsis_mask stands for all elements of as many dimensions as the others leave; a set bit of new_axis_mask for a
new dimension of size 1 in the output, which reads none of the input. Dimensions after the last position are whole.
Source: LiteRT's reference kernel, which does what numpy's `...` and `None` do. TFLite Micro does not have them.
"""

from emitc.source import SourceNode

Lists = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def written_out(
    node: SourceNode, lists: Lists, masks: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Begins, ends, strides and (begin, end, shrink) masks for every input dimension, and the places of new output dimensions.

    lists: begins, ends and strides as the file has them. Places are those in the output, ascending. Raises what is wrong: lists
    of different lengths, more than one ellipsis, more positions than dimensions.
    """
    rank, count = len(node.input(0).shape), len(lists[0])
    ellipsis, new = node.integer("ellipsis_mask", 0), node.integer("new_axis_mask", 0)
    dots = [i for i in range(count) if ellipsis >> i & 1]
    fresh = [i for i in range(count) if new >> i & 1 and i not in dots]
    covered = rank - (count - len(dots) - len(fresh))
    if len({len(values) for values in lists}) != 1 or len(dots) > 1 or covered < 0:
        what = f"has {', '.join(str(len(values)) for values in lists)} begins, ends and strides"
        why = f"with {len(dots)} ellipses and {len(fresh)} new dimensions they do not fit {rank} dimensions"
        raise node.refusal(what, why, tensor=node.input(0))
    if dots and not covered:
        what = "with an ellipsis for no dimension is not supported"
        why = "LiteRT takes it for one all the same, and leaves out a position after it"
        raise node.unsupported(what, why, "export the model without the ellipsis")
    begins: list[int] = []
    ends: list[int] = []
    steps: list[int] = []
    bits = [0, 0, 0]
    inserted: list[int] = []
    place = 0
    # Without an ellipsis, one at the end is meant.
    for i in range(count if dots else count + 1):
        if i in fresh:
            inserted.append(place)
            place += 1
            continue
        whole = i in dots or i == count
        for _ in range(covered if whole else 1):
            axis = len(begins)
            begins.append(0 if whole else lists[0][i])
            ends.append(0 if whole else lists[1][i])
            steps.append(1 if whole else lists[2][i])
            for which, mask in enumerate(masks):
                bits[which] |= (int(which < 2) if whole else mask >> i & 1) << axis
            place += not bits[2] >> axis & 1
    return tuple(begins), tuple(ends), tuple(steps), tuple(bits), tuple(inserted)
