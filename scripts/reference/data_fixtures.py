"""Writes the small files with which the readers of crates/data are tested: by NumPy, TensorFlow, pandas, PyArrow and Pillow.

    python scripts/reference/data_fixtures.py [FOLDER]

The default folder is crates/data/tests/fixtures. Packages that are not installed are passed over, so that several
environments can be used one after another. Every file holds the same seven rows (see `rows`), which the tests compute
for themselves.
"""

import gzip
import io
import pathlib
import struct
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "crates/data/tests/fixtures"
N = 7


def rows():
    i = np.arange(N)
    x = (i[:, None] * 3 + np.arange(3) - 2.5).astype(np.float32)
    label = (i * i - 3).astype(np.int64)
    name = [f"row é {k}" for k in i]
    return x, label, name


def write_numpy():
    x, label, name = rows()
    big = x.astype(">f4")
    for file, array in {
        "f4": x, "f8": x.astype("<f8"), "f2": x.astype("<f2"), "f4_big": big, "i1": x.astype("i1"), "i2": x.astype("<i2"),
        "i4_big": x.astype(">i4"), "i8": label, "u1": np.abs(x).astype("u1"), "u2": np.abs(x).astype("<u2"),
        "u4": np.abs(x).astype("<u4"), "u8": np.abs(x).astype("<u8"), "bool": x > 0,
        "bytes": np.array([n.encode() for n in name]), "text": np.array(name), "fortran": np.asfortranarray(x),
        "object": np.array(name, dtype=object),
    }.items():
        np.save(OUT / f"{file}.npy", array, allow_pickle=True)
    with open(OUT / "version2.npy", "wb") as f:
        np.lib.format.write_array(f, x, version=(2, 0))
    np.savez(OUT / "plain.npz", x=x, label=label, name=np.array(name))
    np.savez_compressed(OUT / "compressed.npz", x=x, label=label, name=np.array(name))
    with open(OUT / "images.idx", "wb") as f:
        f.write(struct.pack(">HBB3I", 0, 8, 3, N, 2, 3) + (np.arange(N * 6) * 5 % 256).astype("u1").tobytes())
    with open(OUT / "labels.idx", "wb") as f:
        f.write(struct.pack(">HBBI", 0, 0x0B, 1, N) + label.astype(">i2").tobytes())
    text = "".join(f"{n}\n" for n in name).encode()
    (OUT / "lines.txt").write_bytes(text)
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as f:
        f.write(text)
    (OUT / "lines.txt.gz").write_bytes(buffer.getvalue())


def write_tensorflow():
    import tensorflow as tf

    x, label, name = rows()
    for kind in ["", "GZIP", "ZLIB"]:
        path = OUT / ("example.tfrecord" + ("." + kind.lower() if kind else ""))
        with tf.io.TFRecordWriter(str(path), tf.io.TFRecordOptions(compression_type=kind)) as w:
            for i in range(N):
                feature = {
                    "x": tf.train.Feature(float_list=tf.train.FloatList(value=x[i])),
                    "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label[i]])),
                    "name": tf.train.Feature(bytes_list=tf.train.BytesList(value=[name[i].encode()])),
                    "ragged": tf.train.Feature(int64_list=tf.train.Int64List(value=range(i))),
                }
                w.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())


def frame():
    import pandas as pd

    x, label, name = rows()
    table = pd.DataFrame({"a": x[:, 0].astype("f8"), "label": label, "name": name})
    table.loc[2, "a"] = np.nan
    table.loc[3, "name"] = 'with "quotes", commas\nand lines'
    return table


def write_pandas():
    frame().to_csv(OUT / "pandas.csv", index=False)
    frame().to_csv(OUT / "pandas.tsv", index=False, sep="\t", header=False)
    frame().to_parquet(OUT / "pandas.parquet")


def write_arrow():
    import pyarrow as pa
    import pyarrow.feather
    import pyarrow.parquet

    x, label, name = rows()
    table = pa.table({
        "label": pa.array(label),
        "small": pa.array(label.astype("i2")),
        "flag": pa.array([bool(i % 2) for i in range(N)]),
        "a": pa.array([None if i == 2 else float(x[i, 0]) for i in range(N)], pa.float32()),
        "name": pa.array([None if i == 3 else name[i] for i in range(N)]),
        "class": pa.array([["cat", "dog"][i % 2] for i in range(N)]).dictionary_encode(),
        "x": pa.array(list(x), pa.list_(pa.float32(), 3)),
        "ragged": pa.array([list(range(i)) for i in range(N)], pa.list_(pa.int64())),
    })
    for codec in ["none", "snappy", "gzip", "zstd", "lz4"]:
        pa.parquet.write_table(table, OUT / f"arrow_{codec}.parquet", compression=codec, row_group_size=3)
    for codec in ["uncompressed", "lz4", "zstd"]:
        with pa.OSFile(str(OUT / f"{codec}.arrow"), "wb") as f:
            options = pa.ipc.IpcWriteOptions(compression=None if codec == "uncompressed" else codec)
            with pa.ipc.new_file(f, table.schema, options=options) as w:
                w.write_table(table, max_chunksize=3)


def write_images():
    from PIL import Image

    for label, folder in enumerate(["cats", "dogs"]):
        (OUT / "images" / folder).mkdir(parents=True, exist_ok=True)
        for i in range(2):
            pixels = np.zeros((4, 6, 3), "u1")
            pixels[..., label] = 200
            pixels[:, :, 2] = 40 * i
            picture = Image.fromarray(pixels)
            picture.save(OUT / "images" / folder / f"{i}.png")
            picture.resize((12, 8)).save(OUT / "images" / folder / f"{i}.jpg", quality=95)


OUT.mkdir(parents=True, exist_ok=True)
for write in [write_numpy, write_tensorflow, write_pandas, write_arrow, write_images]:
    try:
        write()
        print(write.__name__, "done")
    except ImportError as error:
        print(write.__name__, "passed over:", error)
