"""Time against memory: Plimsoll under limits beside the peers' own ways to save memory, in one run.

    python3 benches/curve.py --python PEERS_PYTHON [w5] [w6]

First every peer, plain and with its checkpointing (`torch.utils.checkpoint`, `jax.checkpoint`), each in a process of its own. Then ours, once under
each limit at which a peer ran: the limit is what the peer's process held *without* libraries and mapped files, and ours counts whole. Then ours under
fractions of its own memory, down to the smallest limit it is told of. Best of `--repeats` steps.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
WORKLOADS = {"w5": "w5_gpt", "w6": "w6_wall"}
PEERS = ["torch", "torch-checkpoint", "jax", "jax-checkpoint"]


def ours(example, repeats, limit=None, *more):
    """The result of one run; the smallest limit that would do, when it is refused."""
    command = [ROOT / "target/release/examples" / example, "--json", "--steps", "1", "--warm-up", "1", "--repeats", repeats, *more]
    if limit is not None:
        command += ["--memory-limit", f"{limit}KiB"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode == 3:
        return None, done.stderr
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1]), ""


def smallest(example):
    """The smallest limit in KiB that a refusal tells."""
    _, text = ours(example, 1, 1024)
    return int(re.search(r"smallest limit that would do is (\d+)KiB", text)[1])


def row(name, limit, result, note=""):
    best = min(result["ms_blocks"])
    print(f"| {name} | {limit} | {best:.0f} | {result['rss_peak']:.0f} | {note} |", flush=True)
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", help="default: both")
    parser.add_argument("--python", default=sys.executable, help="an interpreter with the peers installed")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    subprocess.run(["cargo", "build", "--release", "-q", "-p", "plimsoll", "--examples"], cwd=ROOT, check=True)
    for workload in arguments.workloads or WORKLOADS:
        example = WORKLOADS[workload]
        print(f"\n{workload.upper()}\n\n| program | limit, MiB | ms a step | peak RSS, MiB | |\n|---|---|---|---|---|")
        peers = {}
        for variant in PEERS:
            command = [arguments.python, HERE / "peers" / f"{workload}.py", variant, "--steps", "1", "--repeats", str(arguments.repeats)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                print(f"| {variant} | | failed: {done.stderr.strip().splitlines()[-1]} | | |")
                continue
            peers[variant] = json.loads(done.stdout.splitlines()[-1])
            row(variant, "none", peers[variant], f"{peers[variant]['anon_peak']:.0f} without libraries")
        free, _ = ours(example, arguments.repeats)
        base = row("plimsoll", "none", free)
        for variant, peer in peers.items():
            limit = int(peer["anon_peak"] * 1024)
            result, why = ours(example, arguments.repeats, limit)
            if result is None:
                print(f"| plimsoll | {limit / 1024:.0f} | refused: {why.splitlines()[0]} | | as {variant} |")
                continue
            time = min(result["ms_blocks"]) / min(peer["ms_blocks"])
            row("plimsoll", f"{limit / 1024:.0f}", result, f"as {variant}: {time:.2f} of its time, {result['rss_peak'] / peer['anon_peak']:.2f} of its memory")
        least = smallest(example)
        fractions = [int(free["rss_peak"] * 1024 * f) for f in (0.9, 0.75, 0.6, 0.5, 0.4, 0.3)]
        for limit in [f for f in fractions if f > least] + [least]:
            result, _ = ours(example, arguments.repeats, limit)
            assert result["loss"] == free["loss"], "a limit changes no result"
            note = f"{100 * (min(result['ms_blocks']) / base - 1):+.1f} %, predicted {result['predicted_ms']:.0f} ms"
            row("plimsoll", f"{limit / 1024:.0f}", result, note + (", the smallest limit" if limit == least else ""))


if __name__ == "__main__":
    main()
