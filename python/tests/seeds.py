"""Runs the programs that the project starts from, each in a process of its own, and measures it from outside.

    python seeds.py [--scale 1] [--only 002] [--beside PYTHON]

prints the table of docs/python.md: what each held at most, inside which limit. `--beside` names an interpreter that has TensorFlow, which runs the same
programs without a limit. The programs lie beside the checkout.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve()
FOUND = [p / "shared" / "seeds" / "snippets" for p in HERE.parents if (p / "shared" / "seeds" / "snippets").is_dir()]
SCRIPTS = sorted(FOUND[0].glob("*.py")) if FOUND else []

DEFAULT_SCALE = "0.02"

# MiB. The arrays that programs make themselves with NumPy count, as does everything in the process.
LIMIT = 300
OWN_ARRAYS = {
    "001_1_session_whole_dataset": 900,
    "001_2_one_shot_iterator": 900,
}
# At SCALE=1 these make 11.2 GiB of arrays with NumPy (float64, then float32 beside it) before the engine is asked for anything.
OWN_ARRAYS_AT_1 = {"002_1_fit_arrays": 11_700, "002_3_fit_dataset": 11_700}


def limit_of(script, scale=DEFAULT_SCALE):
    """The limit in MiB that a program keeps."""
    at_1 = OWN_ARRAYS_AT_1 if float(scale) == 1 else {}
    return at_1.get(script.stem) or OWN_ARRAYS.get(script.stem, LIMIT)


def run(script, python=sys.executable, module="plimsoll", limit=None, scale=DEFAULT_SCALE, timeout=3600):
    """Runs a program; gives its exit code, its output and errors, its peak in MiB as the kernel counts it (VmHWM), and its seconds."""
    env = {**os.environ, "TF_MODULE": module, "SCALE": scale, "TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}
    env.pop("PLIMSOLL_MEMORY_LIMIT", None)
    if limit:
        env["PLIMSOLL_MEMORY_LIMIT"] = f"{limit}MiB"
    begun = time.monotonic()
    stop = ["timeout", str(timeout)]
    measure = (
        "import os, subprocess, sys\n"
        "child = subprocess.Popen(sys.argv[1:])\n"
        "_, status, usage = os.wait4(child.pid, 0)\n"
        "print('PEAK', usage.ru_maxrss // 1024, file=sys.stderr)\n"
        "os._exit(os.waitstatus_to_exitcode(status) & 0xff)\n"
    )
    command = [*stop, sys.executable, "-c", measure, python, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, env=env, start_new_session=True)
    errors, _, peak = done.stderr.rpartition("PEAK")
    return done.returncode, done.stdout, errors, int(peak or 0), time.monotonic() - begun


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--scale", default=DEFAULT_SCALE)
    parser.add_argument("--only", default="")
    parser.add_argument("--beside")
    parser.add_argument("--no-limit", action="store_true")
    given = parser.parse_args()
    print("| program | limit, MiB | held, MiB | s |" + (" TensorFlow held, MiB | s |" if given.beside else ""))
    print("| --- | --- | --- | --- |" + (" --- | --- |" if given.beside else ""), flush=True)
    for script in (s for s in SCRIPTS if given.only in s.stem):
        limit = None if given.no_limit else limit_of(script, given.scale)
        code, _, errors, peak, seconds = run(script, limit=limit, scale=given.scale)
        if code:
            print(errors, file=sys.stderr)
        row = f"| {script.stem} | {limit} | {peak if code == 0 else 'failed'} | {seconds:.1f} |"
        if given.beside:
            code, _, _, peak, seconds = run(script, given.beside, "tensorflow", scale=given.scale)
            row += f" {peak} | {seconds:.1f} |" if code == 0 else " refuses | |"
        print(row, flush=True)


if __name__ == "__main__":
    main()
