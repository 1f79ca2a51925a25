"""What the Python engine costs beside the arithmetic: run as `python benches/python_engine.py`."""

import subprocess
import sys
import time

PROBE = """
import time
begun = time.perf_counter()
import {first}
middle = time.perf_counter()
{second}
end = time.perf_counter()
status = dict(line.split(":") for line in open("/proc/self/status") if line.startswith("VmHWM"))
print((end - middle) * 1e3, int(status["VmHWM"].split()[0]) / 1024)
"""


def imports():
    def probe(second):
        code = PROBE.format(first="numpy", second=second)
        runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split() for _ in range(7)]
        return [sorted(float(run[i]) for run in runs)[3] for i in (0, 1)]

    ms, mib = probe("import plimsoll._engine")
    _, without = probe("pass")
    print(f"import plimsoll._engine: {ms:.1f} ms, VmHWM {mib:.1f} MiB, {mib - without:.1f} MiB beyond Python and NumPy")


def each(what, n, f):
    f()
    begun = time.perf_counter()
    for _ in range(n):
        f()
    print(f"{what}: {(time.perf_counter() - begun) / n * 1e6:.2f} us")


def main():
    imports()
    import numpy as np

    from plimsoll import _engine as e

    x = np.ones((4, 4), "float32")
    t = e.tensor(x)
    each("lazy op (t + 1)", 3000, lambda: t + 1)
    e.flush()
    each("op and look ((t + 1).numpy())", 3000, lambda: (t + 1).numpy())
    (a,) = e.trace_begin([((4, 4), "float32")])
    program = e.trace_end([a + 1])
    each("program of one op, tensor in", 3000, lambda: program([t]))
    each("program of one op, array in", 3000, lambda: program([x]))
    v = e.Variable(x)
    (a,) = e.trace_begin([((32, 8), "float32")])
    w, b = e.Variable(np.zeros((8, 1), "float32")), e.Variable(np.zeros(1, "float32"))
    loss = e.reduce("mean", e.unary("square", e.matmul(a, w) + b))
    for variable, g in zip((w, b), e.gradients([loss], [w, b])):
        variable.assign_sub(g * 0.01)
    step = e.trace_end([loss])
    data = np.ones((32 * 20000, 8), "float32")
    begun = time.perf_counter()
    e.run_steps(step, [data], 32, 20000, shuffle=(1, 0), collect=[0])
    print(f"run_steps, a training step of a linear model, batch 32, shuffled: {(time.perf_counter() - begun) / 20000 * 1e6:.2f} us")
    each("read a variable (v.numpy())", 1000, v.numpy)


if __name__ == "__main__":
    main()
