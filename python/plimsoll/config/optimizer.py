"""`tf.config.optimizer`: accepted; the planner does what it does."""

_options = {}


def set_jit(enabled):
    """Accepted: everything is compiled to plans."""


def get_jit():
    """Everything is compiled to plans."""
    return ""


def set_experimental_options(options):
    """Accepted."""
    _options.update(options)


def get_experimental_options():
    """What was given."""
    return dict(_options)
