"""Runs W3, the input pipeline alone, in Plimsoll and in the peers, one after another in one run, and prints ratios.

    python benches/pipeline.py --python PEERS_PYTHON [--cols 100 1000] [--rounds 3]

Every measurement is a process of its own, the programs take turns, the best round of each counts. A ratio above 1 means that
Plimsoll gives more rows a second. From a file ours runs twice: within 1 GiB, which has room for the file's blocks from the first
epoch on, and within 64 MiB, where other rows are read again in every epoch. The file is in the page cache for all.
With --realtime every program runs before all others of a machine that is not idle (`chrt`, for root).
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
MEMORY = ["tf", "tf-tuned", "torch", "torch-tuned", "grain", "numpy"]
FILE = ["torch-file", "torch-tuned-file", "grain-file", "numpy-file"]


def run(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        print(f"failed: {command}\n{done.stderr[-500:]}", file=sys.stderr)
        return None
    return json.loads(lines[-1])


def table(title, commands, rounds):
    best = {}
    for _ in range(rounds):
        for name, command in commands.items():
            result = run(command)
            if result and result["rows_s"] > best.get(name, {"rows_s": 0})["rows_s"]:
                best[name] = result
    ours = best["plimsoll"]
    print(f"\n{title}\n\n| program | rows/s | ours / its | peak RSS, MiB |\n|---|---|---|---|")
    for name, r in best.items():
        print(f"| {name} | {r['rows_s']:,.0f} | {ours['rows_s'] / r['rows_s']:.2f} | {r['rss_peak']:.0f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="an interpreter with the peers installed")
    parser.add_argument("--cols", type=int, nargs="*", default=[100, 1000])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--realtime", action="store_true", help="before everything else that runs on the machine")
    parser.add_argument("--only", nargs="*", help="only these peers")
    a = parser.parse_args()
    build = ["cargo", "build", "--release", "--quiet", "-p", "plimsoll-data", "--no-default-features", "--example", "w3_rows"]
    subprocess.run(build, cwd=ROOT, check=True)
    ours = ROOT / "target/release/examples/w3_rows"
    with tempfile.TemporaryDirectory() as folder:
        for cols in a.cols:
            path = pathlib.Path(folder) / "x.npy"
            make = "import numpy as np, sys; np.save(sys.argv[1], np.random.default_rng(0).random((int(sys.argv[2]), int(sys.argv[3])), dtype=np.float32))"
            subprocess.run([a.python, "-c", make, path, str(a.rows), str(cols)], check=True)
            for where, variants in [("in memory", MEMORY), ("from a file", FILE)]:
                ours_from = ["--data", path] if where == "from a file" else ["--cols", cols, "--rows", a.rows]
                commands = {"plimsoll": [ours, "--passes", 7, *ours_from]}
                if where == "from a file":
                    commands["plimsoll"] += ["--limit", 1024]
                    commands["plimsoll, 64 MiB"] = [ours, "--passes", 7, *ours_from]
                for variant in variants:
                    if a.only is None or variant in a.only:
                        # The slow ones are measured in two passes, the fast ones in more.
                        passes = 2 if variant.split("-")[0] in ("tf", "grain") or variant in ("torch", "torch-file") else 5
                        commands[variant] = [a.python, HERE / "peers/w3.py", variant, "--data", path, "--passes", passes]
                if a.realtime:
                    commands = {name: ["chrt", "-r", 1, *command] for name, command in commands.items()}
                table(f"{cols} floats a row, {where}", commands, a.rounds)


if __name__ == "__main__":
    main()
