"""`tf.config.threading`: the engine uses one thread for each processor; results do not depend on it."""

_numbers = {"intra": 0, "inter": 0}


def set_intra_op_parallelism_threads(num_threads):
    """Accepted: results do not depend on the number of threads."""
    _numbers["intra"] = int(num_threads)


def set_inter_op_parallelism_threads(num_threads):
    """Accepted: results do not depend on the number of threads."""
    _numbers["inter"] = int(num_threads)


def get_intra_op_parallelism_threads():
    """What was given; 0 lets the engine decide."""
    return _numbers["intra"]


def get_inter_op_parallelism_threads():
    """What was given; 0 lets the engine decide."""
    return _numbers["inter"]
