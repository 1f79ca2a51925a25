"""Files that NumPy, pandas, PyArrow and TensorFlow write, read by the real command; and what it writes, read by them.

    pip install numpy pandas pyarrow tensorflow-cpu
    python scripts/check_data.py target/release/plimsoll DIRECTORY

Every row of every file is compared with the table that it was made of.
"""

import os
import pathlib
import subprocess
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet
import tensorflow as tf

ROWS = 1000
RANDOM = np.random.default_rng(3)
TABLE = {
    "price": RANDOM.normal(size=ROWS).round(6),
    "count": RANDOM.integers(-(2**40), 2**40, ROWS),
    "name": [f'row "{i}", é\tand so on' if i % 7 else "" for i in range(ROWS)],
}


def example(i):
    feature = tf.train.Feature
    values = {
        "price": feature(float_list=tf.train.FloatList(value=[TABLE["price"][i]])),
        "count": feature(int64_list=tf.train.Int64List(value=[TABLE["count"][i]])),
        "name": feature(bytes_list=tf.train.BytesList(value=[TABLE["name"][i].encode()])),
    }
    return tf.train.Example(features=tf.train.Features(feature=values)).SerializeToString()


def write_examples(path, compression):
    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for i in range(ROWS):
            writer.write(example(i))


def write_stream(path, compression):
    table = pa.table(TABLE)
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(str(path), table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=300)


def parquet(**options):
    return lambda path: pa.parquet.write_table(pa.table(TABLE), path, **options)


WRITERS = {
    "numpy.npz": lambda path: np.savez(path, **TABLE),
    "numpy-compressed.npz": lambda path: np.savez_compressed(path, **TABLE),
    "pandas.csv": lambda path: pd.DataFrame(TABLE).to_csv(path, index=False),
    "pandas.parquet": lambda path: pd.DataFrame(TABLE).to_parquet(path, index=False),
    "pyarrow.parquet": parquet(),
    "pyarrow-groups.parquet": parquet(row_group_size=97, data_page_size=200, compression="zstd"),
    "pyarrow-gzip.parquet": parquet(compression="gzip", use_dictionary=False, data_page_version="2.0"),
    "pyarrow-lz4.parquet": parquet(compression="lz4"),
    "pyarrow-delta.parquet": parquet(use_dictionary=False, column_encoding={"name": "DELTA_BYTE_ARRAY", "count": "DELTA_BINARY_PACKED"}),
    "pyarrow.arrow": lambda path: write_stream(path, None),
    "pyarrow-lz4.arrow": lambda path: write_stream(path, "lz4"),
    "pyarrow-zstd.arrow": lambda path: write_stream(path, "zstd"),
    "pyarrow.feather": lambda path: pa.feather.write_feather(pa.table(TABLE), path),
    "tensorflow.tfrecord": lambda path: write_examples(path, ""),
    "tensorflow.tfrecord.gz": lambda path: write_examples(path, "GZIP"),
}


def read_arrow(path):
    return pa.ipc.open_file(str(path)).read_all().to_pydict()


def read_examples(path):
    spec = {
        "price": tf.io.FixedLenFeature([], tf.float32),
        "count": tf.io.FixedLenFeature([], tf.int64),
        "name": tf.io.FixedLenFeature([], tf.string),
    }
    compression = "GZIP" if str(path).endswith(".gz") else ""
    records = list(tf.data.TFRecordDataset(str(path), compression).as_numpy_iterator())
    return {name: column.numpy() for name, column in tf.io.parse_example(records, spec).items()}


def frame(data):
    return {name: data[name].to_numpy() for name in TABLE}


READERS = {
    "ours.csv": [lambda path: frame(pd.read_csv(path, keep_default_na=False))],
    "ours.parquet": [lambda path: frame(pd.read_parquet(path)), lambda path: pa.parquet.read_table(path).to_pydict()],
    "ours.arrow": [read_arrow],
    "ours.feather": [lambda path: frame(pd.read_feather(path)), lambda path: pa.feather.read_table(path).to_pydict()],
    "ours.tfrecord": [read_examples],
    "ours.tfrecord.gz": [read_examples],
}


def check(found, source):
    assert set(found) == set(TABLE), f"{source}: {sorted(found)}"
    text = [s.decode() if isinstance(s, bytes) else str(s) for s in found["name"]]
    assert text == TABLE["name"], f"{source}: {text[:3]}"
    assert (np.asarray(found["count"]) == TABLE["count"]).all(), f"{source}: {found['count'][:3]}"
    # A `tf.train.Example` holds floats of 32 bits.
    exact = "tfrecord" not in source
    price = TABLE["price"] if exact else TABLE["price"].astype(np.float32)
    assert (np.asarray(found["price"]).astype(price.dtype) == price).all(), f"{source}: {found['price'][:3]}"


def main():
    command, folder = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    folder.mkdir(parents=True, exist_ok=True)

    def convert(source, target):
        done = subprocess.run([command, "data", "convert", source, target], capture_output=True, text=True)
        assert done.returncode == 0, f"{source.name} to {target.name}: {done.stderr}"

    for name, write in WRITERS.items():
        write(folder / name)
        convert(folder / name, folder / "back.arrow")
        check(read_arrow(folder / "back.arrow"), name)
    print(f"read: {', '.join(WRITERS)}")
    for name, readers in READERS.items():
        for source in ["pandas.csv", "pyarrow.parquet", "tensorflow.tfrecord"]:
            convert(folder / source, folder / name)
            for read in readers:
                check(read(folder / name), f"{name} from {source}")
    # NumPy's files hold numbers alone.
    np.savez(folder / "numbers.npz", price=TABLE["price"], count=TABLE["count"])
    convert(folder / "numbers.npz", folder / "ours.npz")
    check({**np.load(folder / "ours.npz"), "name": TABLE["name"]}, "ours.npz")
    np.save(folder / "rows.npy", TABLE["price"].reshape(-1, 5))
    convert(folder / "rows.npy", folder / "ours.npy")
    assert (np.load(folder / "ours.npy") == TABLE["price"].reshape(-1, 5)).all()
    print(f"written: {', '.join(READERS)}, ours.npz, ours.npy")


main()
