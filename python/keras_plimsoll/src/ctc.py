"""Decoding of connectionist temporal classification, on the host: paths have lengths that depend on values."""

import numpy as np


def greedy(logits, lengths, merge_repeated, blank):
    """The best class of each step, repeats merged and blanks dropped; -1 fills up."""
    batch, steps, classes = logits.shape
    blank = blank % classes if blank is not None else classes - 1
    best = logits.argmax(axis=-1)
    scores = -np.where(np.arange(steps)[None, :] < lengths[:, None], logits.max(axis=-1), 0.0).sum(axis=1)
    paths = np.full((1, batch, steps), -1, dtype="int32")
    for row in range(batch):
        path, previous = [], -1
        for c in best[row, : lengths[row]]:
            if c != blank and not (merge_repeated and c == previous):
                path.append(c)
            previous = c
        paths[0, row, : len(path)] = path
    return paths, scores[:, None].astype(logits.dtype)


def beam_search(logits, lengths, beam_width, top_paths, blank):
    """The most probable label sequences over beams of prefixes, each with and without a blank at its end."""
    batch, steps, classes = logits.shape
    blank = blank % classes if blank is not None else classes - 1
    top = logits.max(axis=-1, keepdims=True)
    logs = logits - top - np.log(np.exp(logits - top).sum(axis=-1, keepdims=True))
    paths = np.full((top_paths, batch, steps), -1, dtype="int32")
    scores = np.zeros((batch, top_paths), dtype=logits.dtype)
    for row in range(batch):
        beams = {(): (0.0, -np.inf)}
        for step in logs[row, : lengths[row]]:
            beams = _extended(beams, step, blank)
            kept = sorted(beams.items(), key=lambda item: -np.logaddexp(*item[1]))[:beam_width]
            beams = dict(kept)
        ranked = sorted(beams.items(), key=lambda item: -np.logaddexp(*item[1]))[:top_paths]
        for rank, (path, ends) in enumerate(ranked):
            paths[rank, row, : len(path)] = path
            scores[row, rank] = np.logaddexp(*ends)
    return paths, scores


def _extended(beams, step, blank):
    """Every prefix after one more step: log-probabilities that it ends in a blank, and that it does not."""
    new = {}

    def put(path, ends_blank, value):
        old = new.get(path, (-np.inf, -np.inf))
        new[path] = (np.logaddexp(old[0], value), old[1]) if ends_blank else (old[0], np.logaddexp(old[1], value))

    for path, (with_blank, without) in beams.items():
        either = np.logaddexp(with_blank, without)
        for c, log in enumerate(step):
            if c == blank:
                put(path, True, either + log)
            elif path and path[-1] == c:
                put(path, False, without + log)
                put((*path, c), False, with_blank + log)
            else:
                put((*path, c), False, either + log)
    return new
