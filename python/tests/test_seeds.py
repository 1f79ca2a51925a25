"""The programs that the project starts from, as they are, each inside a limit that TensorFlow cannot keep.

They lie beside the checkout; where they do not, the programs of tests/programs are what remains.
"""

import os
import pathlib
import re
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve()
FOUND = [p / "shared" / "seeds" / "snippets" for p in HERE.parents if (p / "shared" / "seeds" / "snippets").is_dir()]
SCRIPTS = sorted(FOUND[0].glob("*.py")) if FOUND else []

# MiB. `import tensorflow` alone takes 578; with tf.keras and one step, 650 and more.
WHOLE_ARRAYS = {"001_1_session_whole_dataset": 1100, "001_2_one_shot_iterator": 1100}
LIMIT = 400

EXPECTED = {
    "000_1_memory_growth": "CPU resource management",
    "000_2_dataset_pipeline": r"rows seen 10000 last batch \(16, 20\) <dtype: 'int64'>",
    "000_3_gradient_accumulation": "steps 32 updates 8",
    "001_1_session_whole_dataset": "session ran 762 MiB",
    "001_1_session_whole_dataset_v1graph": r"4 0\.6\d+",
    "001_2_one_shot_iterator": r"batches 1000 \(32, 100\) \(32,\)",
    "001_2_one_shot_iterator_v1graph": r"batches 1000 \(32, 100\) \(32,\)",
    "001_3_cpu_memory_limit": "CPU limited: .*CPU:0",
    "002_1_fit_arrays": "accuracy.*loss",
    "002_2_eager_matmul": r"shape \(2000, 1000\)",
    "002_3_fit_dataset": "peak MiB",
    "003_1_dataset_gradient_tape": "steps 625",
    "003_2_mirrored_strategy": "replicas 1 steps 16",
    "003_3_fit_workers": "epochs 10",
    "004_1_dataset_device": "batches 32",
    "004_2_gradient_accumulation": "batches 32 updates 8",
    "004_3_mixed_precision": "hidden float16 kernel float32 out float32.*LossScaleOptimizer",
}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.stem)
def test_script(script):
    limit = WHOLE_ARRAYS.get(script.stem, LIMIT)
    code = (
        "import runpy, sys\n"
        f"runpy.run_path({str(script)!r}, run_name='__main__')\n"
        "print('PEAK', [int(l.split()[1]) // 1024 for l in open('/proc/self/status') if l.startswith('VmHWM')][0])\n"
    )
    env = {**os.environ, "TF_MODULE": "plimsoll", "PLIMSOLL_MEMORY_LIMIT": f"{limit}MiB"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=900, env=env)
    assert done.returncode == 0, done.stderr
    assert re.search(EXPECTED[script.stem], done.stdout, re.S), done.stdout
    peak = int(done.stdout.rsplit("PEAK", 1)[1])
    assert peak <= limit, f"{peak} MiB, more than the limit of {limit} MiB"


def test_all_scripts_are_known():
    assert not SCRIPTS or sorted(p.stem for p in SCRIPTS) == sorted(EXPECTED)
