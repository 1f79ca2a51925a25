"""The programs that the project starts from, as they are, each inside a limit that TensorFlow cannot keep.

They lie beside the checkout; where they do not, the programs of tests/programs are what remains. With `SCALE=1` in the environment they run as
they were written: two of them then make 11 GiB of arrays with NumPy.
"""

import os
import re

import pytest

import seeds

SCALE = os.environ.get("SCALE", seeds.DEFAULT_SCALE)

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
    "002_2_eager_matmul": rf"shape \({int(100000 * float(SCALE))}, 1000\)",
    "002_3_fit_dataset": "peak MiB",
    "003_1_dataset_gradient_tape": "steps 625",
    "003_2_mirrored_strategy": "replicas 1 steps 16",
    "003_3_fit_workers": "epochs 10",
    "004_1_dataset_device": "batches 32",
    "004_2_gradient_accumulation": "batches 32 updates 8",
    "004_3_mixed_precision": "hidden float16 kernel float32 out float32.*LossScaleOptimizer",
}


@pytest.mark.parametrize("script", seeds.SCRIPTS, ids=lambda p: p.stem)
def test_script(script):
    limit = seeds.limit_of(script, SCALE)
    code, output, errors, peak, _ = seeds.run(script, limit=limit, scale=SCALE, timeout=900 if float(SCALE) < 1 else 7200)
    assert code == 0, errors
    assert re.search(EXPECTED[script.stem], output, re.S), output
    assert 0 < peak <= limit, f"{peak} MiB, more than the limit of {limit} MiB"


def test_all_scripts_are_known():
    assert not seeds.SCRIPTS or sorted(p.stem for p in seeds.SCRIPTS) == sorted(EXPECTED)
