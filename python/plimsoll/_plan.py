"""Plans: what a step will need, before it runs."""

from plimsoll import _engine as engine


class Plan(dict):
    """What the engine says of a planned program; shown as a table in notebooks."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __repr__(self):
        return "\n".join(f"{name:<12} {_shown(name, value)}" for name, value in self.items())

    def _repr_html_(self):
        import html

        rows = "".join(f"<tr><th style='text-align:left'>{html.escape(str(n))}</th><td>{html.escape(_shown(n, v))}</td></tr>" for n, v in self.items())
        return f"<table>{rows}</table>"


def _shown(name, value):
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1024 and "node" not in name:
        return f"{value / 2**20:.2f} MiB"
    return str(value)


def plan(function, *args, **kwargs):
    """The plan of a function for arguments like these (tensors or `tf.TensorSpec`), without running it.

    >>> plimsoll.plan(train_step, tf.TensorSpec([32, 784]), tf.TensorSpec([32], tf.int64))
    """
    from plimsoll._function import Function

    if not isinstance(function, Function):
        function = Function(function)
    program = function.get_concrete_function(*args, **kwargs).program
    return Plan(engine.plan_of(program))
