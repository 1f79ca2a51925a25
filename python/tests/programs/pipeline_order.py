"""Orders and counts of pipelines: repeat, take, skip, shard, zip, interleave, enumerate, cache, reduce, concatenate."""


def main(tf):
    numbers = tf.data.Dataset.range(10)
    listed = lambda d: [x.tolist() if hasattr(x, "tolist") else x for x in d.as_numpy_iterator()]
    shuffled = listed(numbers.shuffle(10, seed=1))
    return {
        "batch": listed(numbers.batch(4)),
        "dropped": listed(numbers.batch(4, drop_remainder=True)),
        "repeat": listed(numbers.take(3).repeat(2)),
        "skip": listed(numbers.skip(7)),
        "shard": listed(numbers.shard(3, 1)),
        "zip": [[int(a), int(b)] for a, b in tf.data.Dataset.zip((numbers, numbers.skip(5)))],
        "enumerate": [[int(i), int(x)] for i, x in numbers.skip(6).enumerate(start=2)],
        "interleave": listed(numbers.take(4).interleave(lambda n: tf.data.Dataset.from_tensors(n).repeat(3), cycle_length=2, block_length=2)),
        "flat_map": listed(numbers.take(3).flat_map(lambda n: tf.data.Dataset.range(n))),
        "filter": listed(numbers.filter(lambda n: n % 3 == 0)),
        "concatenate": listed(numbers.take(2).concatenate(numbers.skip(8))),
        "cache": listed(numbers.map(lambda n: n * n).cache().repeat(2).take(12)),
        "reduce": int(numbers.reduce(tf.constant(0, tf.int64), lambda a, b: a + b)),
        "unbatch": listed(numbers.batch(3).unbatch()),
        "cardinality": [int(numbers.cardinality()), int(numbers.repeat().cardinality()), int(numbers.filter(lambda n: n > 2).cardinality())],
        "sorted": sorted(shuffled),
        "specs": [str(tuple(numbers.batch(3).element_spec.shape)), numbers.element_spec.dtype.name],
    }
