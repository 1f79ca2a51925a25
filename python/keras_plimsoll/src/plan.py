"""The plan of a step, as Python and notebooks see it."""

import html


class Plan:
    """How a step runs within the memory limit, as planned before it runs."""

    def __init__(self, figures):
        self._figures = dict(figures)

    @property
    def peak(self):
        """Bytes that a step takes at its fullest, weights and the optimizer's state included."""
        return self._figures["arena"] + self._figures["states"]

    @property
    def smallest(self):
        """The smallest memory limit in bytes that a step can be planned for; None where the engine does not say."""
        return self._figures.get("smallest")

    @property
    def kept(self):
        """How the limit is kept, in words: slices, what is computed again, what goes to disk."""
        return self._figures["kept"]

    def to_dict(self):
        """All figures."""
        return {**self._figures, "peak_bytes": self.peak}

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
        shown = [("peak", self.peak), ("kept", self.kept)]
        shown += [("smallest", self.smallest)] if self.smallest is not None else []
        rest = {name: value for name, value in self._figures.items() if isinstance(value, (int, float))}
        return shown + [(name, value) for name, value in rest.items() if name != "smallest"]


def _text(value):
    if isinstance(value, int) and value >= 1024:
        size = float(value)
        for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
            if size < 1024 or unit == "TiB":
                return f"{size:.1f} {unit}"
            size /= 1024
    return str(value)
