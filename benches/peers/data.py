"""Makes the data set of W1: rows of standard normal numbers, and labels that a linear rule gives with some noise.

    python data.py DIRECTORY [--rows 200000] [--features 1000]

Writes `x.npy` (float32 [rows, features]) and `y.npy` (float32 [rows, 1]) unless they are there already, a part at
a time: the process never holds them whole.
"""

import argparse
import os

import numpy as np


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--features", type=int, default=1000)
    a = parser.parse_args()
    x_path, y_path = (os.path.join(a.directory, name) for name in ("x.npy", "y.npy"))
    if is_there(x_path, (a.rows, a.features)) and is_there(y_path, (a.rows, 1)):
        return
    os.makedirs(a.directory, exist_ok=True)
    rng = np.random.default_rng(0)
    rule = rng.standard_normal((a.features, 1), dtype=np.float32) / np.sqrt(np.float32(a.features))
    x = np.lib.format.open_memmap(x_path, mode="w+", dtype=np.float32, shape=(a.rows, a.features))
    y = np.lib.format.open_memmap(y_path, mode="w+", dtype=np.float32, shape=(a.rows, 1))
    part = 10_000
    for start in range(0, a.rows, part):
        rows = rng.standard_normal((min(part, a.rows - start), a.features), dtype=np.float32)
        noise = 0.3 * rng.standard_normal((len(rows), 1), dtype=np.float32)
        x[start:start + len(rows)] = rows
        y[start:start + len(rows)] = rows @ rule + noise > 0
    x.flush()
    y.flush()


def is_there(path, shape):
    return os.path.exists(path) and np.load(path, mmap_mode="r").shape == shape


if __name__ == "__main__":
    main()
