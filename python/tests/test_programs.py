"""Programs in the style of TensorFlow's tutorials, run here and compared with what TensorFlow made of the same files.

The numbers are made by scripts/reference/python_programs.py.
"""

import importlib.util
import json
import pathlib

import numpy as np
import pytest

FOLDER = pathlib.Path(__file__).parent / "programs"
EXPECTED = json.loads((FOLDER / "tensorflow.json").read_text())["programs"]


def test_every_program_has_numbers():
    assert sorted(EXPECTED) == sorted(path.stem for path in FOLDER.glob("*.py"))


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_program(tf, name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    check_same(program.main(tf), EXPECTED[name], name)


def check_same(found, expected, where):
    if isinstance(expected, dict):
        assert sorted(found) == sorted(expected), where
        for key in expected:
            check_same(found[key], expected[key], f"{where}/{key}")
    elif isinstance(expected, list) and any(isinstance(v, (list, str)) for v in expected):
        assert len(found) == len(expected), where
        for i, (a, b) in enumerate(zip(found, expected)):
            check_same(a, b, f"{where}/{i}")
    elif isinstance(expected, str):
        assert found == expected, where
    else:
        np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-5, err_msg=where)
