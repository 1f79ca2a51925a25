"""`tf.nest`: tuples, lists and dicts of things, flattened in a fixed order and put together again."""


def is_nested(structure):
    """Whether it is a tuple, list or dict."""
    return isinstance(structure, (tuple, list, dict)) and not _is_leaf(structure)


def _is_leaf(structure):
    # Shapes are tuples, and leaves.
    return type(structure).__name__ == "TensorShape"


def _children(structure):
    if isinstance(structure, dict):
        return [structure[key] for key in _keys(structure)]
    return list(structure)


def _keys(structure):
    try:
        return sorted(structure)
    except TypeError:
        raise TypeError("the keys of a dict in a structure must be sortable, as they are visited in that order") from None


def flatten(structure, expand_composites=False):
    """The leaves, dicts in the order of their keys."""
    if not is_nested(structure):
        return [structure]
    return [leaf for child in _children(structure) for leaf in flatten(child)]


def pack_sequence_as(structure, flat_sequence, expand_composites=False):
    """A structure like this one with other leaves."""
    leaves = list(flat_sequence)
    wanted = len(flatten(structure))
    if len(leaves) != wanted:
        raise ValueError(f"the structure has {wanted} leaves, but {len(leaves)} were given")
    return _packed(structure, iter(leaves))


def _packed(structure, leaves):
    if not is_nested(structure):
        return next(leaves)
    if isinstance(structure, dict):
        made = {key: _packed(structure[key], leaves) for key in _keys(structure)}
        ordered = {key: made[key] for key in structure}
        return ordered if type(structure) is dict else type(structure)(ordered)
    made = [_packed(child, leaves) for child in structure]
    if hasattr(structure, "_fields"):
        return type(structure)(*made)
    return type(structure)(made)


def map_structure(func, *structure, check_types=True, expand_composites=False):
    """A structure of what a function makes of the leaves of one or more structures."""
    for other in structure[1:]:
        assert_same_structure(structure[0], other, check_types)
    leaves = zip(*(flatten(s) for s in structure))
    return pack_sequence_as(structure[0], [func(*each) for each in leaves])


def assert_same_structure(nest1, nest2, check_types=True, expand_composites=False):
    """Raises ValueError or TypeError unless both are nested in the same way."""
    if is_nested(nest1) != is_nested(nest2):
        raise ValueError(f"the structures differ: {nest1!r} and {nest2!r}")
    if not is_nested(nest1):
        return
    if check_types and type(nest1) is not type(nest2) and not (isinstance(nest1, dict) and isinstance(nest2, dict)):
        raise TypeError(f"the structures differ: {type(nest1).__name__} and {type(nest2).__name__}")
    if isinstance(nest1, dict) and sorted(nest1) != sorted(nest2):
        raise ValueError(f"the structures differ: keys {sorted(nest1)} and {sorted(nest2)}")
    first, second = _children(nest1), _children(nest2)
    if len(first) != len(second):
        raise ValueError(f"the structures differ: {len(first)} and {len(second)} parts")
    for a, b in zip(first, second):
        assert_same_structure(a, b, check_types)
