"""Tensors against NumPy: operators, indexing, types, shapes, errors."""

import numpy as np
import pytest

RNG = np.random.default_rng(7)
X = RNG.normal(size=(4, 5, 6)).astype(np.float32)


@pytest.mark.parametrize(
    "key",
    [
        0,
        -1,
        (1, 2),
        (1, 2, 3),
        slice(1, 3),
        slice(None, None, -1),
        slice(None, None, 2),
        (slice(None), 2),
        (slice(3, 0, -2), slice(None), slice(1, None, 3)),
        (Ellipsis, 0),
        (0, Ellipsis, slice(2, 4)),
        None,
        (slice(None), None, 1),
        (None, Ellipsis, None),
        slice(2, 2),
        [0, 2, 3],
        (slice(None), [0, 4]),
        ([0, 1], [2, 3]),
        (slice(None), [0, 1], [2, -1]),
        ([0, 1], slice(None), [2, 3]),
    ],
)
def test_indexing_is_numpys(tf, key):
    np.testing.assert_array_equal(tf.constant(X)[key].numpy(), X[key])


def test_masks(tf):
    x = tf.constant(X)
    np.testing.assert_array_equal(x[x > 0.5].numpy(), X[X > 0.5])
    rows = np.array([True, False, True, False])
    np.testing.assert_array_equal(x[rows].numpy(), X[rows])
    np.testing.assert_array_equal(tf.boolean_mask(x, X[:, :, 0] > 0).numpy(), X[X[:, :, 0] > 0])
    np.testing.assert_array_equal(tf.boolean_mask(x, X[0, :, 0] > 0, axis=1).numpy(), X[:, X[0, :, 0] > 0])


def test_tensors_as_indices(tf):
    x = tf.constant(X)
    i = tf.constant(2)
    np.testing.assert_array_equal(x[i].numpy(), X[2])
    np.testing.assert_array_equal(x[:, i - 1].numpy(), X[:, 1])


@pytest.mark.parametrize("operator", ["__add__", "__sub__", "__mul__", "__truediv__", "__pow__", "__floordiv__", "__mod__", "__lt__", "__ge__", "__eq__", "__ne__"])
def test_operators_are_numpys(tf, operator):
    a, b = np.abs(X) + 0.5, np.abs(X[:, :1]) + 0.3
    expected = getattr(a, operator)(b)
    np.testing.assert_allclose(getattr(tf.constant(a), operator)(tf.constant(b)).numpy(), expected, rtol=1e-5)
    # An array beside a tensor, and a number on either side.
    np.testing.assert_allclose(getattr(tf.constant(a), operator)(b).numpy(), expected, rtol=1e-5)
    np.testing.assert_allclose(getattr(tf.constant(a), operator)(2.0).numpy(), getattr(a, operator)(np.float32(2)), rtol=1e-5)


def test_arrays_before_tensors(tf):
    x = tf.constant(X)
    assert isinstance(X + x, tf.Tensor)
    np.testing.assert_array_equal((X + x).numpy(), X + X)
    np.testing.assert_array_equal((1.0 - x).numpy(), 1 - X)
    np.testing.assert_allclose(np.sqrt(tf.abs(x)), np.sqrt(np.abs(X)))


def test_integers(tf):
    a, b = np.array([7, -7, 8], np.int32), np.array([2, 2, -3], np.int32)
    x, y = tf.constant(a), tf.constant(b)
    np.testing.assert_array_equal((x // y).numpy(), a // b)
    np.testing.assert_array_equal((x % y).numpy(), a % b)
    assert (x / y).dtype == tf.float64
    np.testing.assert_array_equal((x & 3).numpy(), a & 3)
    np.testing.assert_array_equal((~x).numpy(), ~a)
    np.testing.assert_array_equal((~(x > 0)).numpy(), ~(a > 0))
    assert tf.reduce_mean([1, 2, 4]).numpy() == 2


def test_types_are_not_promoted(tf):
    with pytest.raises(tf.errors.InvalidArgumentError, match="int32.*float32|float32.*int32"):
        tf.constant(1) + tf.constant(1.0)
    with pytest.raises(TypeError):
        tf.constant([1, 2]) * 1.5
    with pytest.raises(ValueError, match="dtype"):
        tf.convert_to_tensor(tf.constant(1.0), tf.int32)
    assert (tf.constant([1.0]) + 1).dtype == tf.float32
    assert (tf.constant([1.0]) + np.array([1.0])).dtype == tf.float32


def test_types_of_python_values(tf):
    assert tf.constant(1).dtype == tf.int32
    assert tf.constant(1.0).dtype == tf.float32
    assert tf.constant(True).dtype == tf.bool
    assert tf.constant("a").dtype == tf.string
    assert tf.constant(2**40).dtype == tf.int64
    assert tf.constant(np.float64(1)).dtype == tf.float64
    assert tf.constant([[1, 2], [3, 4]], tf.float16).dtype == tf.float16
    assert tf.constant(3.0, shape=(2, 2)).shape == (2, 2)


def test_dtypes(tf):
    assert tf.float32 == "float32" and tf.float32 == np.float32 and tf.float32 == np.dtype("float32")
    assert tf.float32 != tf.float64 and tf.float32 != None and tf.float32 != 3  # noqa: E711
    assert tf.float32.is_floating and not tf.int32.is_floating and tf.int64.is_integer and tf.bool.is_bool
    assert tf.int32.max == 2**31 - 1 and tf.float16.size == 2 and tf.float32.as_numpy_dtype is np.float32
    assert repr(tf.float32) == "tf.float32" and str(tf.int64) == "<dtype: 'int64'>"
    assert tf.as_dtype(float) == tf.float32 and tf.as_dtype(np.int64) == tf.int64
    assert {tf.float32: 1}["float32"] == 1
    with pytest.raises(TypeError):
        tf.as_dtype("float33")


def test_shapes(tf):
    shape = tf.zeros((2, 3)).shape
    assert shape == (2, 3) and shape == [2, 3] and shape.as_list() == [2, 3] and shape.rank == 2
    assert shape[1:] == (3,) and isinstance(shape[1:], tf.TensorShape) and str(shape) == "(2, 3)"
    assert shape.num_elements() == 6 and shape.is_fully_defined()
    assert tf.TensorShape([None, 3]).is_compatible_with(shape) and not tf.TensorShape([None, 4]).is_compatible_with(shape)
    assert tf.TensorShape(None).is_compatible_with(shape) and tf.TensorShape([1]) + [2] == [1, 2]
    assert tf.shape(tf.zeros((2, 3))).numpy().tolist() == [2, 3]


def test_errors_name_both_facts(tf):
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"\(2, 3\).*\(4, 5\)"):
        tf.matmul(tf.zeros((2, 3)), tf.zeros((4, 5)))
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.zeros((2, 3)) + tf.zeros((4, 5))
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.reshape(tf.zeros((2, 3)), (4, 2))
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.zeros((2,))[5]
    with pytest.raises(ValueError):
        tf.constant([[1, 2], [3]])


def test_looking(tf):
    x = tf.constant([1.5])
    assert float(x) == 1.5 and bool(x > 1) and int(tf.constant(3)) == 3
    assert isinstance(tf.constant(1.0).numpy(), np.float32)
    assert repr(tf.constant([1, 2])) == "<tf.Tensor: shape=(2,), dtype=int32, numpy=array([1, 2], dtype=int32)>"
    assert str(tf.constant(1.5)) == "tf.Tensor(1.5, shape=(), dtype=float32)"
    assert [int(v) for v in tf.constant([1, 2, 3])] == [1, 2, 3]
    assert len(tf.zeros((3, 2))) == 3
    with pytest.raises(TypeError):
        iter(tf.constant(1)).__next__()


def test_variables(tf):
    v = tf.Variable([1.0, 2.0], name="w")
    assert v.name == "w:0" and v.trainable and v.shape == (2,) and v.dtype == tf.float32
    before = v.value()
    v.assign_add([1.0, 1.0])
    assert before.numpy().tolist() == [1, 2] and v.numpy().tolist() == [2, 3]
    assert v.assign([5.0, 6.0]) is v
    assert (v * 2).numpy().tolist() == [10, 12] and (2 - v).numpy().tolist() == [-3, -4] and float(v[0]) == 5
    with pytest.raises(ValueError, match="shape"):
        v.assign([1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="dtype"):
        v.assign(tf.constant([1, 2]))
    assert {v.ref(): 1}[v.ref()] == 1


def test_strings(tf):
    s = tf.constant(["Hello World", "a,b"])
    assert tf.strings.lower(s).numpy().tolist() == [b"hello world", b"a,b"]
    assert tf.strings.split("a b c").numpy().tolist() == [b"a", b"b", b"c"]
    assert tf.strings.regex_replace(s, "o", "0").numpy()[0] == b"Hell0 W0rld"
    assert tf.strings.to_number(tf.constant(["1.5", "2"])).numpy().tolist() == [1.5, 2]
    assert tf.strings.length(s).numpy().tolist() == [11, 3]
    assert (s == "a,b").numpy().tolist() == [False, True]
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.strings.to_number("x")


def test_nest(tf):
    structure = {"b": (1, [2, 3]), "a": 4}
    assert tf.nest.flatten(structure) == [4, 1, 2, 3]
    assert tf.nest.map_structure(lambda x: x * 2, structure) == {"b": (2, [4, 6]), "a": 8}
    assert tf.nest.pack_sequence_as(structure, [1, 2, 3, 4]) == {"b": (2, [3, 4]), "a": 1}
    with pytest.raises(ValueError):
        tf.nest.assert_same_structure((1, 2), (1, (2, 3)))


def test_import_is_light():
    import subprocess
    import sys

    code = (
        "import numpy, resource, time\n"
        "before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()\n"
        "import plimsoll, sys\n"
        "print(time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
        "assert 'keras' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    seconds, kib = done.stdout.split()
    assert float(seconds) <= 0.35, f"import takes {seconds} s"
    assert int(kib) <= 45 * 1024, f"import takes {int(kib) / 1024:.1f} MiB"


def test_special_functions(tf):
    from math import erf, gamma, lgamma

    x = np.array([-3.3, -0.7, 0.2, 0.5, 1.0, 2.5, 30.0])
    assert np.allclose(tf.math.lgamma(x), [lgamma(v) for v in x], rtol=1e-12, atol=1e-13)
    assert np.isinf(tf.math.lgamma([0.0, -1.0]).numpy()).all() and np.isnan(tf.math.digamma([0.0, -2.0]).numpy()).all()
    t = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(t)
        y = tf.math.lgamma(t)
    # The derivative of one is the other; and what both rest on.
    assert np.allclose(tape.gradient(y, t), tf.math.digamma(x), rtol=1e-11)
    assert np.allclose(tf.math.digamma(x + 1) - tf.math.digamma(x), 1 / x, rtol=1e-10)
    assert np.isclose(float(tf.math.digamma(1.0)), -0.5772156649)
    assert np.isclose(float(tf.exp(tf.math.lbeta([2.0, 3.5]))), gamma(2) * gamma(3.5) / gamma(5.5))
    p = tf.constant([-0.999, -0.3, 0.0, 1e-4, 0.77], tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(p)
        w = tf.math.erfinv(p)
    assert np.allclose([erf(v) for v in w.numpy()], p, rtol=1e-13)
    assert np.allclose(tape.gradient(w, p) * 2 / np.sqrt(np.pi) * np.exp(-w.numpy() ** 2), 1)
    assert tf.math.erfinv([-1.0, 1.0]).numpy().tolist() == [-np.inf, np.inf] and np.isnan(float(tf.math.erfinv(1.5)))


def test_shifts(tf):
    x, y = np.array([1, -3, 1000, 7], np.int32), np.array([4, 2, 0, 20], np.int32)
    assert (tf.bitwise.left_shift(x, y).numpy() == x << y).all() and (tf.bitwise.right_shift(x, y).numpy() == x >> y).all()


def test_operators_do_not_promote_once_keras_is_loaded(tf):
    tf.keras.layers.Dense
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.constant([1, 2]) + tf.constant([1.0, 2.0])
    assert (tf.constant([1.0, 2.0], tf.float16) * 2).dtype == tf.float16 and (tf.constant([1, 2]) + 3).dtype == tf.int32
    # Keras' own operations promote.
    assert tf.keras.ops.add(tf.constant([1, 2]), tf.constant([1.0, 2.0])).dtype == "float32"
    v = tf.keras.Variable(np.ones(2, "float32"))
    assert np.allclose(tf.constant([1.0, 2.0]) * v, [1, 2]) and np.allclose(v + 1, 2)


def test_wrong_indices_are_told_where_they_are_asked_for(tf):
    # Nobody looks at a value here.
    with pytest.raises(ValueError, match=r"index 7 at position 1 is not in \[0, 3\)"):
        tf.gather([1.0, 2.0, 3.0], [0, 7])
    with pytest.raises(ValueError, match=r"index -1 at position 0 is not in \[0, 4\)"):
        tf.gather(tf.zeros([2, 4]), tf.constant([-1]), axis=1)


def test_shapes_are_ensured(tf):
    x = tf.zeros((2, 3))
    assert tf.ensure_shape(x, (None, 3)).shape == (2, 3)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"\(2, 3\), not \(2, 4\)"):
        tf.ensure_shape(x, (2, 4))


def test_places_and_parts(tf):
    assert tf.unravel_index([5, 2], (2, 3)).numpy().tolist() == np.stack(np.unravel_index([5, 2], (2, 3))).tolist()
    values = [-1.0, 0.0, 1.5, 2.0, 5.0, 15.0]
    # As TensorFlow's documentation has it.
    assert tf.histogram_fixed_width(values, [0.0, 5.0], nbins=5).numpy().tolist() == [2, 1, 1, 0, 2]
    x = tf.tensor_scatter_nd_update([1, 2, 3], [[1]], [9])
    assert x.dtype == tf.int32 and x.numpy().tolist() == [1, 9, 3]
    # Of several updates of one place the last counts, as TensorFlow's kernel for the CPU has it.
    x = tf.tensor_scatter_nd_update(tf.zeros((3, 2)), [[2], [0], [2]], [[1.0, 2.0], [np.inf, 4.0], [5.0, 6.0]])
    assert x.numpy().tolist() == [[np.inf, 4.0], [0.0, 0.0], [5.0, 6.0]]
    grid = tf.tensor_scatter_nd_update(tf.zeros((2, 2), tf.bool), [[1, 0], [0, 1]], [True, True])
    assert grid.numpy().tolist() == [[False, True], [True, False]]
    assert tf.tensor_scatter_nd_update([1, 2], tf.zeros((0, 1), tf.int32), tf.zeros((0,), tf.int32)).numpy().tolist() == [1, 2]
    assert tf.scatter_nd([[0], [0], [2]], tf.constant([2**60, 1, 7], tf.int64), [3]).numpy().tolist() == [2**60 + 1, 0, 7]


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_images_are_encoded_and_decoded(tf, channels):
    image = RNG.integers(0, 256, (5, 7, channels), dtype=np.uint8)
    png = tf.io.encode_png(image)
    np.testing.assert_array_equal(tf.io.decode_png(png), image)
    assert tf.io.decode_image(png, channels=3, expand_animations=False).shape == (5, 7, 3)
    with pytest.raises(ValueError, match="neither JPEG nor PNG"):
        tf.io.decode_jpeg(b"not an image")
