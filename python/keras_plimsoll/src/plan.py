"""The plan of a step, as Python and notebooks see it."""

import html


class Plan:
    """How a step uses memory: the peak, the smallest limit that would do, and what is kept between steps."""

    def __init__(self, figures):
        self._figures = dict(figures)

    @property
    def peak(self):
        """Bytes in use at the fullest moment of a step."""
        return self._figures["peak"]

    @property
    def smallest(self):
        """The smallest memory limit in bytes that the step can be planned for."""
        return self._figures["smallest"]

    @property
    def kept(self):
        """Bytes held between steps: weights and the optimizer's state."""
        return self._figures["kept"]

    def to_dict(self):
        """All figures."""
        return dict(self._figures)

    def __repr__(self):
        shown = ", ".join(f"{name}={_text(value)}" for name, value in self._rows())
        return f"Plan({shown})"

    def _repr_html_(self):
        rows = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th><td>{html.escape(_text(value))}</td></tr>"
            for name, value in self._rows()
        )
        return f"<table>{rows}</table>"

    def _rows(self):
        first = ["peak", "smallest", "kept"]
        rest = [name for name, value in self._figures.items() if name not in first and isinstance(value, (int, float, str))]
        return [(name, self._figures[name]) for name in [*first, *rest] if name in self._figures]


def _text(value):
    if isinstance(value, int) and value >= 1024:
        size = float(value)
        for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
            if size < 1024 or unit == "TiB":
                return f"{size:.1f} {unit}"
            size /= 1024
    return str(value)
