#!/usr/bin/env python3
"""Whether steps take as long as the planner said, and how tightly they are packed: models under limits, each run in a process of its own.

    python3 benches/predicted.py                    # all models
    python3 benches/predicted.py lstm w5            # some of them
    python3 benches/predicted.py --no-spill w5      # other words with two dashes go to the programs

Limits are fractions of a model's own peak without one (VmHWM), and the smallest that a refusal names. Costs are measured anew for every model,
as in its first run on a machine. The best of five steps counts: other work on the machine makes a step longer, never shorter. What is lost in packing is
how much larger the arena is than the most bytes that are alive at once.
"""

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

EXAMPLES = "target/release/examples"

# name: (program, arguments, fractions of the own peak)
MODELS = {
    # Its batch is drawn again for every step, which the plan does not know of: about a twentieth of the time.
    "mlp": ("w6_wall", ["--layers", "12", "--width", "1024", "--batch", "1024", "--steps", "1"], [0.7, 0.5, 0.35]),
    "cnn": ("w4_cnn", ["--steps", "4"], [0.7, 0.5, 0.4]),
    "w5": ("w5_gpt", ["--steps", "2"], [0.75, 0.5, 0.34, 0.25]),
    "lstm": ("published", ["--model", "lstm", "--steps", "1"], [0.7, 0.5, 0.36]),
    "gpt2": ("published", ["--model", "gpt2", "--steps", "1"], [0.7, 0.5, 0.405]),
    "densenet121": ("published", ["--model", "densenet121", "--steps", "1"], [0.7, 0.5, 0.363]),
    "resnet50": ("published", ["--model", "resnet50", "--steps", "1"], [0.665, 0.532, 0.398, 0.331]),
    "unet": ("published", ["--model", "unet", "--steps", "1"], [0.7, 0.49]),
}


def run(program, arguments, limit, cache):
    command = [f"{EXAMPLES}/{program}", *arguments, "--json", "--repeats", "5", "--warm-up", "1"]
    if limit:
        command += ["--memory-limit", f"{limit}KiB"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "XDG_CACHE_HOME": cache})
    if done.returncode == 3:
        return None, done.stderr
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    result = json.loads(done.stdout.splitlines()[-1])
    return {**result, "ms": min(result["ms_blocks"])}, ""


def packing(result):
    return 100 * (result["arena_bytes"] / result["live_bytes"] - 1)


def smallest(program, arguments, cache):
    """The smallest limit in KiB, as a refusal tells it."""
    _, why = run(program, arguments, 16 * 1024, cache)
    found = re.search(r"smallest limit[^0-9]*([0-9.]+) ?([KMG]iB)", why)
    return int(float(found[1]) * {"KiB": 1, "MiB": 1024, "GiB": 1024 ** 2}[found[2]]) + 64 if found else None


def main():
    words = sys.argv[1:]
    more = [w for w in words if w.startswith("--")]
    names = [w for w in words if not w.startswith("--")] or list(MODELS)
    subprocess.run(["cargo", "build", "--release", "-q", "-p", "plimsoll", "--examples"], check=True)
    print("| model | limit, MiB | of the own peak | predicted, ms | measured, ms | off by, % | slices, ops again, MiB written, read | lost in packing, % | planned in, ms |")
    print("|---|---|---|---|---|---|---|---|---|")
    errors, lost = [], []
    for name in names:
        program, arguments, fractions = MODELS[name]
        arguments = [*arguments, *more]
        with tempfile.TemporaryDirectory() as cache:
            free, _ = run(program, arguments, None, cache)
            print(f"| {name} | none | 1 | | {free['ms']:.1f} | | | {packing(free):.1f} | {free['plan_ms']:.0f} |", flush=True)
            peak = free["rss_peak"] * 1024
            least = smallest(program, arguments, cache)
            limits = [int(peak * fraction) for fraction in fractions]
            limits = [limit for limit in limits if not least or limit > 1.02 * least] + ([least] if least else [])
            for limit in limits:
                kept, why = run(program, arguments, limit, cache)
                if kept is None:
                    print(f"| {name} | {limit / 1024:.0f} | {limit / peak:.2f} | refused: {why.splitlines()[0]} | | | | | |", flush=True)
                    continue
                assert kept["rss_peak"] * 1024 <= limit, f"the limit is kept: {kept['rss_peak']} MiB"
                error = 100 * (kept["predicted_ms"] / kept["ms"] - 1)
                errors.append(error)
                lost.append(packing(kept))
                how = f"{kept['slices']}, {kept['recomputed']}, {kept['written'] / 2**20:.0f}, {kept['read'] / 2**20:.0f}"
                print(f"| {name} | {limit / 1024:.0f} | {limit / peak:.2f} | {kept['predicted_ms']:.1f} | {kept['ms']:.1f} "
                      f"| {error:+.0f} | {how} | {lost[-1]:.1f} | {kept['plan_ms']:.0f} |", flush=True)
    if errors:
        print(f"\nOff by {statistics.median(map(abs, errors)):.0f} % in the median, between {min(errors):+.0f} and {max(errors):+.0f} %, "
              f"{statistics.mean(errors):+.0f} % on average; {len(errors)} runs.")
        print(f"Lost in packing: {statistics.median(lost):.2f} % in the median, {sum(gap <= 2 for gap in lost)} of {len(lost)} at most 2 %, {max(lost):.1f} % at most.")


main()
