"""Reads event files with TensorBoard's own reader and says what is in them.

    pip install tensorboard
    python scripts/check_tensorboard.py DIRECTORY [TAG...]

Fails when a file cannot be read, when a tag that is named is not there, or when its steps do not grow.
"""

import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def main():
    directory, wanted = sys.argv[1], sys.argv[2:]
    events = EventAccumulator(directory)
    events.Reload()
    tags = events.Tags()["scalars"]
    for tag in tags:
        points = events.Scalars(tag)
        steps = [p.step for p in points]
        assert steps == sorted(steps), f"{tag}: steps {steps}"
        print(f"{tag}: {len(points)} points, last {points[-1].value:g} at step {points[-1].step}")
    missing = set(wanted) - set(tags)
    assert tags and not missing, f"missing: {missing}; there are {tags}"


main()
