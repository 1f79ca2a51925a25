"""Lines of text cleaned, split, counted and looked up; CSV beside it."""

import os
import tempfile


def main(tf):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "lines.txt")
        with open(path, "w") as file:
            file.write("The cat sat\non the mat\n\nand the DOG ran off\n")
        lines = tf.data.TextLineDataset(path).filter(lambda s: tf.strings.length(s) > 0).map(tf.strings.lower)
        lines = [line.decode() for line in lines.as_numpy_iterator()]
        words = [w.decode() for line in lines for w in tf.strings.split(line).numpy()]
        vocabulary = sorted(set(words))
        keys = tf.lookup.KeyValueTensorInitializer(vocabulary, tf.range(len(vocabulary), dtype=tf.int64))
        table = tf.lookup.StaticHashTable(keys, -1)
        codes = table.lookup(tf.constant(words + ["unknown"])).numpy().tolist()
        table_path = os.path.join(folder, "table.csv")
        with open(table_path, "w") as file:
            file.write("a,b,name\n1,2.5,x\n3,,y\n-5,0.25,z\n")
        rows = tf.data.experimental.CsvDataset(table_path, [tf.int32, -1.0, "?"], header=True)
        rows = [[int(a), float(b), c.numpy().decode()] for a, b, c in rows]
    return {"lines": lines, "codes": codes, "rows": rows}
