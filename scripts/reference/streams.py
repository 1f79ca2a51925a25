"""Numbered streams of pseudo-random numbers, and the JSON files that refer to them.

The reference files hold expected results but no inputs: every input and every initial weight is
a *stream*, a pure function of its number and of the position in it, so that a test in another
language can make the same array from a few words of JSON. Value `i` of stream `s` is

    z = splitmix64(s * 0x9E3779B97F4A7C15 + i)          all arithmetic in wrapping u64
    u = (z >> 40) / 2**24                               exact in float32, 0 <= u < 1

    kind "uniform":  (2 * u - 1) * scale + offset       every operation in float32
    kind "int":      (z >> 32) % below + offset
    kind "values":   no stream, the numbers are in the file

Positions run over the array in row-major order. README.md describes the files.
"""

import json
import math
import pathlib
import platform

import numpy as np

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
OUTPUT = pathlib.Path(__file__).resolve().parents[2] / "crates" / "plimsoll" / "tests" / "reference"


def hashes(stream, count):
    """The first `count` raw 64-bit values of a stream."""
    with np.errstate(over="ignore"):
        z = np.uint64(stream) * GOLDEN + np.arange(count, dtype=np.uint64)
        z = z + GOLDEN
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def array(spec):
    """The array that a description such as `{"kind": "uniform", "stream": 3, ...}` stands for."""
    shape, dtype = spec["shape"], spec["dtype"]
    if spec["kind"] == "values":
        return np.array(spec["values"], dtype=dtype).reshape(shape)
    z = hashes(spec["stream"], math.prod(shape))
    if spec["kind"] == "int":
        values = (z >> np.uint64(32)) % np.uint64(spec["below"])
        return (values.astype(np.int64) + spec.get("offset", 0)).astype(dtype).reshape(shape)
    u = (z >> np.uint64(40)).astype(np.float32) / np.float32(2**24)
    values = (np.float32(2) * u - np.float32(1)) * np.float32(spec["scale"])
    return (values + np.float32(spec.get("offset", 0))).reshape(shape)


class Case:
    """One named experiment: its settings, its inputs and weights, and what came out.

    Streams are numbered from 0 within a case, in the order in which the arrays are asked for.
    """

    def __init__(self, name, **config):
        self.name, self.config = name, config
        self.inputs, self.weights, self.expected = [], [], []
        self.streams = 0

    def uniform(self, name, shape, scale=1.0, offset=0.0):
        """A float32 input between `offset - scale` and `offset + scale`."""
        return self._add(self.inputs, self._uniform(name, shape, scale, offset))

    def integers(self, name, shape, below, dtype="int32", offset=0):
        """An input of integers from `offset` up to but without `offset + below`."""
        spec = {"name": name, "shape": list(shape), "dtype": dtype, "stream": self._next(),
                "kind": "int", "below": below}
        return self._add(self.inputs, spec | ({"offset": offset} if offset else {}))

    def given(self, name, values, dtype):
        """An input written out in the file: a padding mask, say."""
        values = np.asarray(values)
        return self._add(self.inputs, {"name": name, "shape": list(values.shape), "dtype": dtype,
                                       "kind": "values", "values": values.ravel().tolist()})

    def weight(self, name, shape, scale=0.5, offset=0.0, trainable=True):
        """An initial weight. A constant has scale 0; only non-trainable weights say so."""
        spec = self._uniform(name, shape, scale, offset)
        return self._add(self.weights, spec | ({} if trainable else {"trainable": False}))

    def expect(self, name, values):
        """Records a result: float32 arrays in their shortest exact form, float64 in full."""
        values = np.asarray(values)
        if values.dtype == np.float32:
            flat = [float(str(v)) for v in values.ravel()]
        else:
            flat = values.ravel().tolist()
        self.expected.append({"name": name, "shape": list(values.shape), "values": flat})

    def _uniform(self, name, shape, scale, offset):
        spec = {"name": name, "shape": list(shape), "dtype": "float32", "stream": self._next(),
                "kind": "uniform", "scale": scale}
        return spec | ({"offset": offset} if offset else {})

    def _next(self):
        self.streams += 1
        return self.streams - 1

    def _add(self, group, spec):
        group.append(spec)
        return array(spec)


def uniform(*shape, scale=1.0, offset=0.0):
    """An input to be: called with a case and a name, it adds itself to the case."""
    return lambda case, name: case.uniform(name, shape, scale, offset)


def integers(*shape, below, dtype="int32"):
    return lambda case, name: case.integers(name, shape, below, dtype)


def values(array, dtype):
    return lambda case, name: case.given(name, array, dtype)


def write(filename, about, packages, cases):
    """Writes one reference file, a case per line so that differences between versions show."""
    versions = {"python": platform.python_version()} | {p.__name__: p.__version__ for p in packages}
    head = json.dumps({"about": about, "versions": versions}, indent=1)
    keys = ("name", "config", "inputs", "weights", "expected")
    lines = [json.dumps({key: getattr(case, key) for key in keys}, separators=(",", ":"),
                        allow_nan=False) for case in cases]
    OUTPUT.mkdir(parents=True, exist_ok=True)
    path = OUTPUT / filename
    path.write_text(head[:-2] + ',\n "cases": [\n' + ",\n".join(lines) + "\n]}\n")
    print(f"{filename}: {len(cases)} cases, {path.stat().st_size / 1024:.0f} KiB")
