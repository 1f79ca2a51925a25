"""`tf.autograph`: Python is not rewritten; functions that ask for values run operation by operation."""


def set_verbosity(level, alsologtostdout=False):
    """Accepted."""


class experimental:
    """Accepted."""

    @staticmethod
    def do_not_convert(func=None):
        """The function itself."""
        return func if func is not None else (lambda f: f)

    @staticmethod
    def set_loop_options(**kwargs):
        """Accepted."""


do_not_convert = experimental.do_not_convert
