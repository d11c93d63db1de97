"""Values as JSON objects: some of their attributes under the keys of the object."""

from operator import attrgetter
from typing import Any


def members(value: object, names: str) -> dict[str, Any]:
    """Attributes of a value in the order of `names`: `name`, or `key=attribute` under another key. Tuples become lists.

    >>> members(3 + 4j, "real height=imag")
    {'real': 3.0, 'height': 4.0}
    """
    stated = {
        key: attrgetter(attribute or key)(value) for key, _, attribute in (n.partition("=") for n in names.split())
    }
    return {key: list(item) if isinstance(item, tuple) else item for key, item in stated.items()}
