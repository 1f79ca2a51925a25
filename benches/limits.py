#!/usr/bin/env python3
"""What a memory limit costs: the same training steps without a limit and under limits, each in a process of its own.

    python3 benches/limits.py                    # the published models, then W5 and W6
    python3 benches/limits.py resnet50 w5        # some of them
    python3 benches/limits.py --python peers/bin/python     # with PyTorch's steps beside them, which nobody limits
    python3 benches/limits.py resnet50 --seconds 300 --fractions 0.665     # some of its rows, for longer: where the host is noisy

A fraction is of the model's own peak without a limit (VmHWM). Time is that of a step. For every row runs with and without the limit take turns, equally many: how fast a shared
machine is changes from minute to minute, so that two turns say little. The best of each counts, and beside it stands the median of what the turns say one by one.
PyTorch, in the faster of its layouts of images, takes part in the turns: what others published is the time beside PyTorch's, not beside their own without a limit.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time

# For every row at least so many turns.
TURNS = 2
EXAMPLES = "target/release/examples"
IMAGES = ["torch", "torch-channels-last"]

# PyTorch's: (program, arguments, variants)
PEERS = {
    "resnet50": ("published.py", ["--model", "resnet50"], IMAGES),
    "unet": ("published.py", ["--model", "unet"], IMAGES),
    "gpt2": ("w5.py", ["--width", "384", "--blocks", "6", "--heads", "6", "--steps", "1"], ["torch"]),
    "lstm": ("published.py", ["--model", "lstm"], ["torch"]),
    "densenet121": ("published.py", ["--model", "densenet121"], IMAGES),
    "w5": ("w5.py", ["--steps", "1"], ["torch"]),
    "w6": ("w6.py", ["--steps", "1"], ["torch"]),
}

# name: (program, arguments, [(fraction of the own peak, published overhead in % and by whom)])
PUBLISHED = {
    "resnet50": ("published", ["--model", "resnet50", "--batch", "32"],
                 [(0.665, "+3.2 (MONeT)"), (0.532, "+5.6 (MONeT)"), (0.398, "+9.3 (MONeT)"), (0.331, "+12.0 (MONeT)")]),
    "unet": ("published", ["--model", "unet", "--batch", "4"], [(0.70, "-4.1 (MONeT)"), (0.49, "+1.4 (MONeT)"), (0.475, "+24.5 (DTR)")]),
    "gpt2": ("published", ["--model", "gpt2"], [(0.5, "+10 to 15 (HiRemate)"), (0.405, "+18.7 (DTR)")]),
    "lstm": ("published", ["--model", "lstm", "--batch", "64"], [(0.5, ""), (0.36, "+41.3 (DTR)")]),
    "densenet121": ("published", ["--model", "densenet121", "--batch", "16"], [(0.5, ""), (0.363, "+51.7 (DTR)")]),
    "w5": ("w5_gpt", [], [(0.75, ""), (0.5, ""), (0.34, ""), (0.25, "")]),
    "w6": ("w6_wall", [], [(0.5, ""), (0.25, ""), (0.2, "")]),
}


def run(program, arguments, limit, more=()):
    command = [f"{EXAMPLES}/{program}", *arguments, "--json", "--repeats", "5", "--steps", "1", "--warm-up", "1", *more]
    if limit:
        command += ["--memory-limit", f"{limit}KiB"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 3:
        return None, done.stderr.splitlines()[0]
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    return json.loads(done.stdout.splitlines()[-1]), ""


def peer(python, name, variant, repeats=5):
    """The best step of PyTorch's form of a model, and its peak."""
    program, arguments, _ = PEERS[name]
    command = [python, f"benches/peers/{program}", variant, *arguments, "--repeats", str(repeats)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    result = json.loads(done.stdout.splitlines()[-1])
    return min(result["ms_blocks"]), result["rss_peak"]


def percent(ours, other):
    return f"{100 * (ours / other - 1):+.1f}"


def compared(ours, others):
    """The best of all turns, and the median of what the turns say one by one."""
    return f"{percent(min(ours), min(others))} | {percent(statistics.median(a / b for a, b in zip(ours, others)), 1)}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="model", help="of " + ", ".join(PUBLISHED) + "; all unless named")
    parser.add_argument("--python", help="an interpreter with benches/requirements.txt")
    parser.add_argument("--seconds", type=float, default=60, help="how long turns are taken for a row, at least")
    parser.add_argument("--fractions", type=float, nargs="+", help="only these of the models' rows")
    a = parser.parse_args()
    subprocess.run(["cargo", "build", "--release", "-q", "-p", "plimsoll", "--examples"], check=True)
    print("| model | limit, MiB | of the own peak | step, ms | overhead, % | in the median of turns, % | beside PyTorch, % | in the median of turns, % | predicted, ms | peak, MiB | slices, ops again, MiB written | published, % |")
    print("|---" * 12 + "|")
    for name in a.models or PUBLISHED:
        program, arguments, fractions = PUBLISHED[name]
        free, _ = run(program, arguments, None)
        beside, variant = "", None
        if a.python:
            (ms, rss), variant = min((peer(a.python, name, variant), variant) for variant in PEERS[name][2])
            beside = percent(min(free["ms_blocks"]), ms)
            print(f"| {name}, {variant} | none | | {ms:.0f} | | | | | | {rss:.0f} | | |", flush=True)
        print(f"| {name} | none | 1 | {min(free['ms_blocks']):.0f} | | | {beside} | | | {free['rss_peak']:.0f} | | |", flush=True)
        for fraction, published in fractions:
            if a.fractions and fraction not in a.fractions:
                continue
            limit = int(free["rss_peak"] * 1024 * fraction)
            times, others, peers, begin = [], [], [], time.monotonic()
            while len(times) < TURNS or time.monotonic() - begin < a.seconds:
                kept, why = run(program, arguments, limit)
                if kept is None:
                    break
                assert kept["loss"] == free["loss"], "a limit changes no result"
                assert kept["rss_peak"] * 1024 <= limit, "the limit is kept"
                times.append(min(kept["ms_blocks"]))
                others.append(min(run(program, arguments, None)[0]["ms_blocks"]))
                if variant:
                    peers.append(peer(a.python, name, variant)[0])
            if kept is None:
                print(f"| {name} | {limit / 1024:.0f} | {fraction} | refused: {why} | | | | | | | | {published} |", flush=True)
                continue
            beside = compared(times, peers) if peers else " | "
            how = f"{kept['slices']}, {kept['recomputed']}, {kept['written'] / 2**20:.0f}"
            print(f"| {name} | {limit / 1024:.0f} | {fraction} | {min(times):.0f} | {compared(times, others)} | {beside} | {kept['predicted_ms']:.0f} "
                  f"| {kept['rss_peak']:.0f} | {how} | {published} |", flush=True)


main()
