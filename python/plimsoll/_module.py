"""`tf.Module`: an object that knows the variables it holds."""

import re

from plimsoll import _engine as engine
from plimsoll._control import name_scope


class Module:
    """A base for things with variables: attributes, and what they hold, are searched in the order of their names."""

    def __init__(self, name=None):
        if name is not None and not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise ValueError(f"{name!r} is not a valid module name: it must be a valid Python identifier")
        self._name = name or re.sub(r"(?<!^)(?=[A-Z][a-z])|(?<=[a-z0-9])(?=[A-Z])", "_", type(self).__name__).lower()

    name = property(lambda self: self._name)
    name_scope = property(lambda self: name_scope(self._name))

    @property
    def variables(self):
        """All variables, its own and those of modules in it."""
        return tuple(_unique(_found(self, _is_variable, set())))

    @property
    def trainable_variables(self):
        """Those that are trained."""
        return tuple(v for v in self.variables if v.trainable)

    @property
    def non_trainable_variables(self):
        """Those that are not."""
        return tuple(v for v in self.variables if not v.trainable)

    @property
    def submodules(self):
        """All modules in it."""
        return tuple(m for m in _unique(_found(self, lambda x: isinstance(x, Module), set())) if m is not self)

    @classmethod
    def with_name_scope(cls, method):
        """A method inside of the module's scope of names."""
        import functools

        @functools.wraps(method)
        def scoped(self, *args, **kwargs):
            with self.name_scope:
                return method(self, *args, **kwargs)

        return scoped


def _is_variable(x):
    return isinstance(x, engine.Variable) or isinstance(getattr(x, "_value", None), engine.Variable)


def _found(x, wanted, seen):
    if id(x) in seen:
        return
    seen.add(id(x))
    if isinstance(x, (list, tuple)):
        children = list(x)
    elif isinstance(x, dict):
        children = [x[key] for key in sorted(x, key=str)]
    elif hasattr(x, "__dict__") and (isinstance(x, Module) or _is_layer(x)):
        children = [vars(x)[key] for key in sorted(vars(x)) if key not in ("_bound", "_self")]
    else:
        return
    direct = [c for c in children if wanted(c)]
    yield from direct
    for child in children:
        if not _is_variable(child):
            yield from _found(child, wanted, seen)


def _is_layer(x):
    return any(base.__name__ in ("Layer", "Operation") and base.__module__.startswith("keras.") for base in type(x).__mro__)


def _unique(items):
    seen = set()
    for item in items:
        if id(item) not in seen:
            seen.add(id(item))
            yield item
