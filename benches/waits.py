"""Does training wait for its input? W1's steps alone, its pipeline alone, and both together.

    python benches/waits.py [--rounds 3] [--steps 2000] [--rows 20000] [--threads 1] [--prefix WORD ...]

Rows are mapped, shuffled, batched and prefetched: from memory and from files with a cheap map, and from files with a map that takes about
half, one and two times a step on one core. Prints milliseconds a batch: of the step alone, of the pipeline alone, of both; what no
arrangement of the work could be faster than, which is the longer of the two, or all processor time shared by all cores; and what the report
says: how long steps waited, and for which stage. With --prefix the program runs behind other words, such as `nice -n -19`.
"""

import argparse
import json
import os
import pathlib
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--threads", type=int, help="threads of a step; all cores if not given")
    parser.add_argument("--prefix", nargs="*", default=[])
    a = parser.parse_args()
    build = ["cargo", "build", "--release", "--quiet", "-p", "plimsoll", "--example", "waits"]
    subprocess.run(build, cwd=ROOT, check=True)
    program = ROOT / "target/release/examples/waits"
    cores = len(os.sched_getaffinity(0))
    print("| input | step | pipeline | together | bound | waited | for | threads |\n|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        cases = [("in memory, cheap map", []), ("files, cheap map", ["--files", folder])]
        cases += [(f"files, map of {share} % of a step", ["--files", folder, "--share", share]) for share in (50, 100, 200)]
        for name, options in cases:
            command = [*a.prefix, program, "--rounds", a.rounds, "--steps", a.steps, "--rows", a.rows, *options]
            command += ["--threads", a.threads] if a.threads else []
            done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True)
            r = json.loads(done.stdout.splitlines()[-1])
            step, pipeline, together = r["step"], r["pipeline"], r["together"]
            bound = max(step["wall"], pipeline["wall"], (step["cpu"] + pipeline["cpu"]) / cores)
            print(
                f"| {name} | {step['wall']:.3f} | {pipeline['wall']:.3f} | {together['wall']:.3f} | {bound:.3f} "
                f"| {r['waited']:.3f} ({r['copied']:.3f} of copying) | {r['stage']} | {r['threads']} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
