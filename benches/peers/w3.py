"""W3: the input pipeline alone. Rows of floats from a .npy file: x * 2 - 1, shuffle, batches of 32, prefetch.

A pass is an epoch; rows_s is from the median pass after the first, from making the iterator to its last batch. In the usual
form (`tf`, `torch`, `grain`) rows are scaled one at a time, as the order map, shuffle, batch says; the tuned forms gather
and scale a batch at a time. `-file` maps the file instead of loading it. `numpy` is a plain loop over a permutation, the speed of
the memory itself. tf shuffles in a buffer of 10,000 rows, the others completely.
"""

import statistics
import time

import numpy as np

import measure

VARIANTS = ["tf", "tf-tuned", "torch", "torch-tuned", "torch-file", "torch-tuned-file", "grain", "grain-file", "numpy", "numpy-file"]
a = measure.arguments(__doc__, VARIANTS, data="x.npy", passes=3, batch=32)
x = np.load(a.data, mmap_mode="r" if a.variant.endswith("file") else None)
N = len(x)
framework = a.variant.split("-")[0]


def tf_peer():
    import os

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow as tf

    data = tf.data.Dataset.from_tensor_slices(x)
    scale = lambda row: row * 2.0 - 1.0
    if a.variant == "tf-tuned":
        data = data.shuffle(10000).batch(a.batch).map(scale, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
    else:
        data = data.map(scale).shuffle(10000).batch(a.batch).prefetch(tf.data.AUTOTUNE)
    return lambda: data


def torch_peer():
    import torch
    from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

    mapped = a.variant.endswith("file")
    tensor = None if mapped else torch.from_numpy(x)

    class Rows(Dataset):
        def __len__(self):
            return N

        def __getitem__(self, i):
            row = torch.from_numpy(np.array(x[i])) if mapped else tensor[i]
            return row * 2.0 - 1.0

    rows = Rows()
    if "tuned" in a.variant:
        loader = DataLoader(rows, sampler=BatchSampler(RandomSampler(rows), a.batch, False), batch_size=None)
    else:
        loader = DataLoader(rows, batch_size=a.batch, shuffle=True)
    return lambda: loader


def grain_peer():
    import grain

    data = (grain.MapDataset.source(x).shuffle(seed=0).map(lambda row: row * np.float32(2) - np.float32(1))
            .batch(a.batch, drop_remainder=False)
            .to_iter_dataset(grain.ReadOptions(num_threads=2, prefetch_buffer_size=64)))
    return lambda: data


def numpy_peer():
    random = np.random.default_rng(0)

    def batches():
        order = random.permutation(N)
        for i in range(0, N, a.batch):
            yield x[order[i:i + a.batch]] * np.float32(2) - np.float32(1)

    return batches


make = {"tf": tf_peer, "torch": torch_peer, "grain": grain_peer, "numpy": numpy_peer}[framework]()
seconds = []
for _ in range(a.passes):
    start = time.perf_counter()
    seen = sum(len(batch) for batch in make())
    seconds.append(time.perf_counter() - start)
    assert seen == N
rows_s = N / statistics.median(seconds[1:] or seconds)
print(f'{{"variant": "{a.variant}", "rows_s": {rows_s:.0f}, "rss_peak": {measure.memory("VmHWM"):.1f}}}')
