"""Tensors to and from other libraries."""

import numpy as np
import pytest

from plimsoll import _engine as e

DTYPES = ["float32", "float64", "float16", "int32", "int64", "uint8", "bool"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3, 4)])
def test_out_and_in(dtype, shape):
    array = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
    out = np.from_dlpack(e.tensor(array))
    assert out.dtype == array.dtype and out.shape == shape and (out == array).all()
    back = e.from_dlpack(array)
    assert back.dtype == dtype and back.shape == shape and (back.numpy() == array).all()


def test_out_is_the_memory_itself_and_read_only():
    t = e.tensor(np.arange(6, dtype="float32"))
    out = np.from_dlpack(t)
    assert out.ctypes.data == t.numpy().ctypes.data
    assert not out.flags.writeable
    del t
    assert (out == np.arange(6)).all()


def test_in_shares_read_only_memory_and_copies_the_rest():
    t = e.tensor(np.arange(1 << 16, dtype="float32"))
    same = e.from_dlpack(t)
    assert same.numpy().ctypes.data == t.numpy().ctypes.data
    writable = np.arange(6, dtype="float32")
    copy = e.from_dlpack(writable)
    writable[:] = 0
    assert (copy.numpy() == np.arange(6)).all()
    turned = np.arange(6, dtype="float32").reshape(2, 3).T
    assert (e.from_dlpack(turned).numpy() == turned).all()
    assert (e.from_dlpack(turned[::-1]).numpy() == turned[::-1]).all()


def test_computed_values_go_out():
    assert (np.from_dlpack(e.tensor(np.ones(3, "float32")) * 2) == 2).all()


def test_torch():
    torch = pytest.importorskip("torch")
    t = e.tensor(np.arange(6, dtype="float32").reshape(2, 3))
    there = torch.from_dlpack(t)
    there += 1
    assert (t.numpy() == np.arange(6).reshape(2, 3)).all()
    assert (e.from_dlpack(there).numpy() == np.arange(6).reshape(2, 3) + 1).all()
