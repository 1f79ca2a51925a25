"""Examples written to a TFRecord file, read, parsed and batched with padding."""

import os
import tempfile

import numpy as np


def main(tf):
    rng = np.random.default_rng(5)
    feature = tf.train.Feature
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "data.tfrecord")
        with tf.io.TFRecordWriter(path) as writer:
            for i in range(20):
                values = {
                    "label": feature(int64_list=tf.train.Int64List(value=[i - 3])),
                    "x": feature(float_list=tf.train.FloatList(value=rng.normal(size=4))),
                    "name": feature(bytes_list=tf.train.BytesList(value=[f"row {i}".encode()])),
                }
                writer.write(tf.train.Example(features=tf.train.Features(feature=values)).SerializeToString())
        spec = {
            "label": tf.io.FixedLenFeature([], tf.int64),
            "x": tf.io.FixedLenFeature([4], tf.float32),
            "name": tf.io.FixedLenFeature([], tf.string),
        }
        data = tf.data.TFRecordDataset(path).map(lambda r: tf.io.parse_single_example(r, spec)).batch(8)
        labels, sums, names = [], [], []
        for batch in data:
            labels += batch["label"].numpy().tolist()
            sums += tf.reduce_sum(batch["x"], 1).numpy().tolist()
            names += [n.decode() for n in batch["name"].numpy()]
        size = os.path.getsize(path)
    lengths = tf.data.Dataset.range(1, 8).map(lambda n: tf.fill([n], n)).padded_batch(3, padding_values=tf.constant(-1, tf.int64))
    padded = [b.numpy().tolist() for b in lengths]
    return {"labels": labels, "sums": sums, "names": names, "bytes": size, "padded": padded}
