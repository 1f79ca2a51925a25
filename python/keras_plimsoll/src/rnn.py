"""Recurrent layers: Keras' step functions written out in time, and the engine's recurrences for the usual cells."""

from keras.src import tree
from keras.src.backend.common import global_state

from keras_plimsoll.src import primitives as engine
from keras_plimsoll.src import numpy as knp
from keras_plimsoll.src.core import cast
from keras_plimsoll.src.core import convert_to_tensor
from keras_plimsoll.src.core import unstack


def rnn(
    step_function,
    inputs,
    initial_states,
    go_backwards=False,
    mask=None,
    constants=None,
    unroll=False,
    input_length=None,
    time_major=False,
    zero_output_for_mask=False,
    return_all_outputs=True,
):
    """Calls `step_function(input, states) -> (output, states)` once for each step of time.

    At a masked step the states stay as they were, and the output is the one before, or zeros if those are asked for.
    """
    constants = list(constants or [])
    swap = (lambda x: x) if time_major else (lambda x: knp.swapaxes(x, 0, 1))
    inputs = tree.map_structure(lambda x: swap(convert_to_tensor(x)), inputs)
    steps = tree.flatten(inputs)[0].shape[0]
    if unroll and not steps:
        raise ValueError("Unrolling requires a fixed number of timesteps.")
    order = list(reversed(range(steps))) if go_backwards else list(range(steps))
    sliced = tree.map_structure(lambda x: _Rows(unstack(x)), inputs)
    masks = None
    if mask is not None:
        masks = cast(mask, "bool")
        masks = knp.expand_dims(masks, -1) if masks.ndim == 2 else masks
        masks = unstack(swap(masks))

    states, outputs, previous = tree.map_structure(convert_to_tensor, initial_states), [], None
    for t in order:
        x = tree.map_structure(lambda rows: rows.at[t], sliced)
        output, new_states = step_function(x, tuple(states) + tuple(constants))
        if masks is not None:
            kept = knp.zeros_like(output) if previous is None or zero_output_for_mask else previous
            output = _where_real(masks[t], output, kept)
            new_states = tree.map_structure(lambda new, old: _where_real(masks[t], new, old), new_states, _like(states, new_states))
        states, previous = new_states, output
        if return_all_outputs:
            outputs.append(output)
        else:
            outputs = [output]
    last = outputs[-1]
    all_outputs = swap(knp.stack(outputs, axis=0))
    return last, all_outputs, states


class _Rows:
    """The steps of one input; no list, so that structures are not taken apart."""

    def __init__(self, at):
        self.at = at


def _like(states, structure):
    return tree.pack_sequence_as(structure, tree.flatten(states))


def _where_real(mask, new, old):
    """`new` where the step is real; the mask has the leading axes of `new`, and 1 for the rest."""
    mask = knp.all(knp.reshape(mask, (mask.shape[0], -1)), axis=-1) if mask.ndim > 2 else knp.reshape(mask, (mask.shape[0],))
    return engine.select(knp.reshape(mask, (mask.shape[0], *[1] * (new.ndim - 1))), new, cast(old, new.dtype))


def cudnn_ok(*args, **kwargs):
    return False


def _is(function, name):
    """Whether an activation is Keras' own of this name."""
    from keras.src import activations
    from keras.src import ops

    return function in (getattr(activations, name), getattr(ops, name, None), getattr(ops.nn, name, None))


def _recurrence(cell, inputs, states, mask, kernel, recurrent_kernel, bias, recurrent_bias, return_sequences, go_backwards):
    inputs, kernel, recurrent_kernel = knp.promoted(inputs, kernel, recurrent_kernel)
    if inputs.dtype not in ("float32", "float64"):
        raise NotImplementedError
    projections = knp.matmul(inputs, kernel)
    if bias is not None:
        projections = knp.add(projections, bias)
    if mask is not None:
        mask = cast(mask, "bool")
    outputs, last = engine.recurrence(
        cell,
        projections,
        recurrent_kernel,
        bias=recurrent_bias,
        initial=[cast(s, inputs.dtype) for s in states],
        mask=mask,
        reverse=bool(go_backwards),
    )
    if mask is not None and _zeroes_masked_outputs():
        outputs = engine.select(knp.expand_dims(mask, -1), outputs, knp.like(outputs, 0))
        end = outputs.shape[1] - 1
        final = knp.part(outputs, 1, 0, 1) if go_backwards else knp.part(outputs, 1, end, end + 1)
    else:
        final = knp.expand_dims(last[0], 1)
    if go_backwards:
        # The engine leaves each state at its place; Keras gives them in the order of computation.
        outputs = engine.flip(outputs, [1])
    if not return_sequences:
        outputs = final
    return knp.squeeze(final, 1), outputs, list(last)


def _zeroes_masked_outputs():
    """What the layer that is being called says about masked outputs; Keras does not pass it on, but names its scope."""
    scopes = global_state.get_global_attribute("name_scope_stack", default=[])
    return bool(scopes) and bool(getattr(scopes[-1].caller, "zero_output_for_mask", False))


def lstm(
    inputs,
    initial_state_h,
    initial_state_c,
    mask,
    kernel,
    recurrent_kernel,
    bias,
    activation,
    recurrent_activation,
    return_sequences=False,
    go_backwards=False,
    unroll=False,
):
    if not (_is(activation, "tanh") and _is(recurrent_activation, "sigmoid")):
        raise NotImplementedError
    states = [initial_state_h, initial_state_c]
    return _recurrence(
        "lstm", inputs, states, mask, kernel, recurrent_kernel, bias, None, return_sequences, go_backwards
    )


def gru(
    inputs,
    initial_state,
    mask,
    kernel,
    recurrent_kernel,
    bias,
    activation,
    recurrent_activation,
    return_sequences=False,
    go_backwards=False,
    unroll=False,
    time_major=False,
    reset_after=True,
):
    if not (_is(activation, "tanh") and _is(recurrent_activation, "sigmoid")) or not reset_after or time_major:
        raise NotImplementedError
    if bias is None:
        units = recurrent_kernel.shape[0]
        input_bias, recurrent_bias = None, knp.zeros((3 * units,), convert_to_tensor(kernel).dtype)
    else:
        input_bias, recurrent_bias = unstack(bias)
    return _recurrence(
        "gru",
        inputs,
        [initial_state],
        mask,
        kernel,
        recurrent_kernel,
        input_bias,
        recurrent_bias,
        return_sequences,
        go_backwards,
    )


def bidirectional_lstm(*args, **kwargs):
    raise NotImplementedError


def bidirectional_gru(*args, **kwargs):
    raise NotImplementedError
