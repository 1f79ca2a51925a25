"""Times steps, watches the process's memory and prints one JSON line: the same for every peer.

Memory is in MiB, from /proc/self/status:

    rss_peak    VmHWM at the end: the most that was ever resident, libraries and mapped files included
    anon_peak   the highest RssAnon + RssShmem that a thread saw which looks 20 times a second:
                without libraries and mapped files
"""

import argparse
import importlib.metadata
import json
import os
import statistics
import threading
import time

PACKAGES = {"torch": "torch", "jax": "jax", "keras": "tensorflow-cpu"}


def memory(*fields):
    """The sum of these fields of /proc/self/status, in MiB."""
    with open("/proc/self/status") as status:
        lines = [line.split() for line in status]
    return sum(int(words[1]) for words in lines if words[0][:-1] in fields) / 1024


def arguments(about, variants, **defaults):
    """Command line: a variant, steps and repeats, and the sizes, each with its default."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("variant", choices=variants)
    for name, default in defaults.items():
        parser.add_argument("--" + name.replace("_", "-"), type=type(default), default=default)
    return parser.parse_args()


class Run:
    """One measurement. Made before the framework is imported, so that its memory counts."""

    def __init__(self, workload, variant):
        self.result = {"workload": workload, "framework": variant.split("-")[0], "variant": variant}
        self.anon_peak, self.over = 0.0, threading.Event()
        self.watcher = threading.Thread(target=self._watch, daemon=True)
        self.watcher.start()

    def _watch(self):
        while not self.over.wait(0.05):
            self.anon_peak = max(self.anon_peak, memory("RssAnon", "RssShmem"))

    def time(self, step, steps, repeats, warm_up=3):
        """Calls `step`, which gives back its loss, `warm_up` times and then in blocks."""
        losses = [step() for _ in range(warm_up)]
        blocks = []
        for _ in range(repeats):
            start = time.perf_counter()
            block = [step() for _ in range(steps)]
            blocks.append((time.perf_counter() - start) / steps)
            losses += block
        self.blocks(blocks)
        self.losses(losses)

    def time_fit(self, model, data, steps, repeats, **options):
        """The same through Keras's `fit`: an epoch is a block, the first one the warm-up."""
        import keras

        blocks = []

        class Clock(keras.callbacks.Callback):
            def on_epoch_begin(self, epoch, logs=None):
                self.start = time.perf_counter()

            def on_epoch_end(self, epoch, logs=None):
                blocks.append((time.perf_counter() - self.start) / steps)

        history = model.fit(data, steps_per_epoch=steps, epochs=repeats + 1, verbose=0, callbacks=[Clock()], **options)
        self.blocks(blocks[1:])
        self.losses(history.history["loss"])

    def blocks(self, seconds):
        self.result["ms_per_step"] = round(1e3 * statistics.median(seconds), 4)
        self.result["ms_blocks"] = [round(1e3 * s, 4) for s in seconds]

    def losses(self, values):
        values = [float(v) for v in values]
        self.result["loss"] = [round(v, 6) for v in (values if len(values) <= 8 else values[:4] + values[-4:])]

    def finish(self, batch):
        self.over.set()
        self.watcher.join()
        result = self.result
        result["samples_s"] = round(1e3 * batch / result["ms_per_step"], 1)
        result["rss_peak"] = round(memory("VmHWM"), 1)
        result["anon_peak"] = round(max(self.anon_peak, memory("RssAnon", "RssShmem")), 1)
        result["version"] = importlib.metadata.version(PACKAGES[result["framework"]])
        print(json.dumps(result), flush=True)


def quiet():
    """Keeps TensorFlow from talking; to be called before it is imported."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
