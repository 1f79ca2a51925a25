"""Keras layers, losses and optimizers in the words of the reference files."""

import re

import numpy as np

from streams import array

# Settings that do not change what a layer computes from given weights and given masks.
IGNORED = re.compile(r"name|trainable|dtype|data_format|seed|build_config|mask_zero|synchronized"
                     r"|flash_attention|unroll|stateful|return_state|unit_forget_bias"
                     r"|lora_.*|gptq_.*|quantization_.*|renorm.*|virtual_batch_size"
                     r"|.*(initializer|regularizer|constraint)")
# RNN layers keep their weights in a cell with a numbered name: "lstm/lstm_cell_3/kernel".
CELL = re.compile(r"(lstm|gru|simple_rnn)_cell(_\d+)?")


def settings(layer):
    """The configuration of a layer, defaults included, without what does not matter here."""
    config = {"layer": type(layer).__name__}
    for key, value in layer.get_config().items():
        if key == "layer":
            config["inner"] = settings(layer.forward_layer)
        elif not IGNORED.fullmatch(key) and not isinstance(value, dict):
            config[key] = list(value) if isinstance(value, tuple) else value
    if config.get("activation") == "gelu":
        config["activation"] = "gelu_erf"  # Keras's default; the other one is "gelu_tanh"
    return config


def optimizer_settings(optimizer):
    """The configuration of an optimizer, with a constant learning rate in its shortest form."""
    config = {key: value for key, value in optimizer.get_config().items()
              if key not in ("name", "loss_scale_factor", "gradient_accumulation_steps")}
    rate = config["learning_rate"]
    if isinstance(rate, dict):
        arguments = {key: value for key, value in rate["config"].items() if key != "name"}
        config["learning_rate"] = {"schedule": rate["class_name"]} | arguments
    else:
        config["learning_rate"] = float(str(np.float32(rate)))
    return {"optimizer": type(optimizer).__name__} | config


def loss_settings(loss):
    """The configuration of a loss, with the arguments its own configuration may leave out."""
    config = loss.get_config() | loss._fn_kwargs  # Huber does not tell its delta
    return {"loss": type(loss).__name__} | {key: value for key, value in config.items()
                                            if key not in ("name", "dtype")}


def describe_weights(case, layer, prefix="", scale=0.5):
    """Adds the weights of a built layer to a case, in Keras's order; returns their names."""
    names = [prefix + weight_name(weight) for weight in layer.weights]
    assert len(set(names)) == len(names), names
    for name, weight in zip(names, layer.weights):
        around_one = re.search(r"gamma|scale|moving_variance", name)
        case.weight(name, weight.shape, scale, 1.0 if around_one else 0.0, weight.trainable)
    return names


def assign_weights(case, weights):
    """Gives Keras weights the initial values that the case describes."""
    for weight, spec in zip(weights, case.weights, strict=True):
        weight.assign(array(spec))


def weight_name(weight):
    """A name without the layer's own: "kernel", "query/kernel", "forward/recurrent_kernel"."""
    parts = [part for part in weight.path.split("/")[1:] if not CELL.fullmatch(part)]
    return "/".join(re.sub(r"^(forward|backward)_.*", r"\1", part) for part in parts)
