"""Runs the programs of python/tests/programs with TensorFlow and writes their numbers beside them.

    /path/to/venv/bin/python scripts/reference/python_programs.py [NAME...]

The programs are the same files that the tests run with plimsoll. Needs tensorflow (2.21 was used) and NumPy.
"""

import importlib.util
import json
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import tensorflow as tf  # noqa: E402

folder = pathlib.Path(__file__).parents[2] / "python" / "tests" / "programs"
target = folder / "tensorflow.json"
numbers = json.loads(target.read_text())["programs"] if target.exists() else {}
for path in sorted(folder.glob("*.py")):
    if len(sys.argv) > 1 and path.stem not in sys.argv[1:]:
        continue
    spec = importlib.util.spec_from_file_location(path.stem, path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    numbers[path.stem] = program.main(tf)
    print(path.stem, "done", file=sys.stderr)
target.write_text(json.dumps({"source": f"tensorflow {tf.__version__}", "programs": numbers}, indent=1) + "\n")
