"""Programs written for TensorFlow: `python -m plimsoll.run`."""

import subprocess
import sys


def run(folder, code, *arguments, before=()):
    script = folder / "train.py"
    script.write_text(code)
    command = [sys.executable, "-m", "plimsoll.run", *before, str(script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=folder)


def test_names_and_arguments(tmp_path):
    (tmp_path / "helper.py").write_text("import tensorflow as tf\nTWO = tf.constant(2)\n")
    code = (
        "import sys\n"
        "import tensorflow as tf\n"
        "import tensorflow.math\n"
        "import tensorflow.compat.v1 as tf1\n"
        "from tensorflow import nn\n"
        "from tensorflow.data import Dataset\n"
        "from helper import TWO\n"
        "assert tf.__name__ == 'plimsoll' and nn is tf.nn and tf1.Session and sys.modules['__main__'].TWO is TWO\n"
        "if __name__ == '__main__':\n"
        "    print(sys.argv[1:], int(sum(Dataset.range(4).as_numpy_iterator())) * int(TWO), tf.memory_info()['limit'])\n"
    )
    for before, after in [(("--memory-limit", "300MiB"), ()), ((), ("--memory-limit=300MiB",))]:
        done = run(tmp_path, code, "--epochs", "3", "-h", *after, before=before)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split("\n")[0] == f"['--epochs', '3', '-h'] 12 {300 * 2**20}"


def test_keras_under_its_old_names(tmp_path):
    code = (
        "from tensorflow import keras\n"
        "from tensorflow.keras import layers\n"
        "from tensorflow.keras.layers import Dense\n"
        "from tensorflow.keras.models import Sequential\n"
        "import tensorflow.keras.backend as K\n"
        "assert Dense is layers.Dense is keras.layers.Dense and K.epsilon() > 0\n"
        "print(keras.config.backend(), Sequential([Dense(2)])(keras.ops.ones((1, 3))).shape)\n"
    )
    done = run(tmp_path, code)
    assert done.returncode == 0 and done.stdout.strip() == "plimsoll (1, 2)", done.stdout + done.stderr


def test_what_is_missing_is_told(tmp_path):
    for line, told in [
        ("import tensorflow.python.framework", "private to TensorFlow"),
        ("import tensorflow.contrib", "not among the parts of TensorFlow that Plimsoll has"),
        ("from tensorflow.compat.v1 import layers", "layers"),
    ]:
        done = run(tmp_path, line)
        assert done.returncode == 1 and told in done.stderr, done.stderr
    done = subprocess.run([sys.executable, "-m", "plimsoll.run", "nothing.py"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2 and "no file 'nothing.py'" in done.stderr
    done = run(tmp_path, "", before=("--memory-limit", "much"))
    assert done.returncode == 2 and "'512MiB'" in done.stderr


def test_errors_begin_at_the_users_line(tmp_path):
    done = run(tmp_path, "import atexit, sys\natexit.register(lambda: print(sys.argv is not None))\n\n1 / 0\n")
    lines = done.stderr.splitlines()
    assert done.returncode == 1 and done.stdout == "True\n"
    assert "train.py" in lines[1] and "line 4" in lines[1]
    left = run(tmp_path, "import sys\nsys.exit(7)\n")
    assert left.returncode == 7


def test_importing_plimsoll_changes_nothing():
    code = "import sys, plimsoll\nprint(any(type(f).__module__.startswith('plimsoll.run') for f in sys.meta_path), 'tensorflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["False", "False"]
