"""What notebooks show of Keras' own objects."""

import html

from keras.src.callbacks.history import History

# A long training shows its ends.
_ROWS = 12


def _shown(value):
    try:
        return f"{float(value):.4g}"
    except (TypeError, ValueError):
        return str(value)


def _history_html(self):
    """The metrics of each epoch."""
    names = list(self.history)
    epochs = list(self.epoch)
    rows = list(range(len(epochs)))
    if len(rows) > _ROWS:
        rows = [*rows[: _ROWS // 2], None, *rows[-_ROWS // 2 :]]
    head = "".join(f"<th>{html.escape(str(name))}</th>" for name in ["epoch", *names])
    body = ""
    for row in rows:
        cells = ["…"] * (1 + len(names))
        if row is not None:
            values = (self.history[name] for name in names)
            cells = [str(epochs[row] + 1), *(_shown(v[row]) if row < len(v) else "" for v in values)]
        body += "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>"
    return f"<table><tr>{head}</tr>{body}</table>"


def install():
    """Gives histories their tables."""
    History._repr_html_ = _history_html
