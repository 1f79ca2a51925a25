"""Plans: what a step will need, before it runs."""

from plimsoll import _engine as engine

# Figures in bytes; the others are counts, seconds and words.
_BYTES = ("peak", "smallest", "arena", "live", "states", "states_in_file", "file", "written", "read")


# What these figures are where nothing has to be done to keep the limit: they are shown where they say something.
_NOTHING = {"slices": 1, "ops_again": 0, "states_in_file": 0, "file": 0, "written": 0, "read": 0, "seconds": 0.0, "extra_seconds": 0.0}


class Plan:
    """How a step runs within the memory limit, as planned before it runs. Notebooks show it as a table.

    All figures of the engine are attributes; sizes are in bytes.
    """

    def __init__(self, figures):
        self._figures = dict(figures)

    @property
    def peak(self):
        """What a step takes at its fullest: its arena, and the weights and optimizer's state in memory."""
        return self._figures["arena"] + self._figures["states"]

    @property
    def smallest(self):
        """The smallest memory limit of the whole process that such a step can be planned for."""
        return self._figures["smallest"]

    @property
    def kept(self):
        """How the limit is kept, in words: slices, what is computed again, what goes to disk."""
        return self._figures["kept"]

    def to_dict(self):
        """All figures."""
        return {**self._figures, "peak": self.peak, "at_the_peak": self._figures["peak"]}

    def __getattr__(self, name):
        try:
            return self.__dict__["_figures"][name]
        except KeyError:
            raise AttributeError(name) from None

    def __repr__(self):
        return "\n".join(f"{name:<16} {text}" for name, text in self._rows())

    def _repr_html_(self):
        import html

        cells = ((html.escape(name), html.escape(text).replace(", ", "<br>")) for name, text in self._rows())
        left = "text-align:left;vertical-align:top"
        rows = "".join(f"<tr><th style='{left};white-space:nowrap'>{name}</th><td style='{left}'>{text}</td></tr>" for name, text in cells)
        return f"<table>{rows}</table>"

    def _rows(self):
        figures = {"peak": self.peak, "kept": self.kept, **self.to_dict()}
        for name, value in figures.items():
            if name in _NOTHING and value == _NOTHING[name]:
                continue
            if name == "at_the_peak":
                value = ", ".join(value)
            elif name in _BYTES and value is not None:
                value = size_text(value)
            elif isinstance(value, float):
                value = f"{value:.3g}"
            yield name.replace("_", " "), str(value)


def size_text(n):
    """A size in words."""
    size = float(n)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{n} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def plan(function, *args, **kwargs):
    """The plan of a function for arguments like these (tensors or `tf.TensorSpec`), without running it.

    >>> plimsoll.plan(train_step, tf.TensorSpec([32, 784]), tf.TensorSpec([32], tf.int64))
    """
    from plimsoll._function import Function

    if not isinstance(function, Function):
        function = Function(function)
    program = function.get_concrete_function(*args, **kwargs).program
    return plan_of(program)


def plan_of(program):
    """The plan of a traced program."""
    return Plan(engine.plan_of(program, smallest=True))
