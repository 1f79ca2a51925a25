"""Trains with the real command and reads everything it wrote with readers that others wrote.

    pip install tensorboard safetensors numpy
    python scripts/check_readers.py target/release/plimsoll DIRECTORY

TensorBoard reads the scalars, safetensors the weights, NumPy the predictions, `json` the trace; and the predictions are those that NumPy computes
from the weights.
"""

import json
import pathlib
import subprocess
import sys

import numpy as np
from safetensors import safe_open
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

JOB = """
memory_limit = "128MiB"
[model]
layers = [{ layer = "dense", units = 16, activation = "relu", name = "first" }, { layer = "dense", units = 3, name = "second" }]
[data]
format = "npy"
arrays = { x = "x.npy", y = "y.npy" }
label = "y"
[optimizer]
learning_rate = 0.01
[training]
epochs = 4
tensorboard = true
trace = true
"""


def main():
    command, folder = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(1)
    y = random.integers(0, 3, 600)
    x = (random.normal(size=(600, 5)) + 2 * np.eye(3, 5)[y]).astype(np.float32)
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", y)
    (folder / "job.toml").write_text(JOB)

    def plimsoll(*words):
        subprocess.run([command, *words], cwd=folder, check=True)

    plimsoll("train", "job.toml", "--fresh", "--quiet")
    plimsoll("predict", "job.toml", "x.npy", "--output", "predictions.npy")
    run = folder / "runs/job"

    events = EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    tags = events.Tags()["scalars"]
    losses = [point.value for point in events.Scalars("epoch/loss")]
    assert len(losses) == 4 and losses[-1] < losses[0], losses
    assert {"memory/peak_mib", "memory/limit_mib", "memory/planned_mib", "wait/input_seconds"} <= set(tags), tags
    print(f"TensorBoard: {len(tags)} scalars, epoch/loss {losses}")

    with safe_open(run / "weights.safetensors", "numpy") as file:
        weights = {name: file.get_tensor(name) for name in file.keys()}
    print("safetensors:", {name: weights[name].shape for name in weights})

    def weight(layer, what):
        [name] = [n for n in weights if n.startswith(layer) and n.endswith(what)]
        return weights[name].astype(np.float64)

    hidden = np.maximum(x @ weight("first", "kernel") + weight("first", "bias"), 0)
    expected = hidden @ weight("second", "kernel") + weight("second", "bias")
    given = np.load(folder / "predictions.npy")
    assert given.shape == expected.shape == (600, 3), given.shape
    assert np.abs(given - expected).max() < 1e-4, np.abs(given - expected).max()
    print(f"NumPy: {given.shape} predictions, at most {np.abs(given - expected).max():.1e} from its own")

    trace = json.loads((run / "trace.json").read_text())
    trace = trace["traceEvents"] if isinstance(trace, dict) else trace
    counters = {event["name"] for event in trace if event["ph"] == "C"}
    slices = sum(event["ph"] == "X" for event in trace)
    assert slices and counters, (slices, counters)
    print(f"trace: {slices} slices, counters {sorted(counters)}")


main()
