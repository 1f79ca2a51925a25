"""Keras optimizers fed with given gradients, and learning-rate schedules. Run by `layers.py`.

Two variables, `a` and `b`, are updated ten times; the gradient of step `k` is slice `k` of the
inputs `grad_a` and `grad_b`. Recorded is each variable after each step, and with `use_ema` its
moving average too. Gradients do not depend on the variables, so that errors cannot grow.
"""

import keras
import numpy as np
import tensorflow as tf
from keras import optimizers as K

from describe import optimizer_settings
from streams import Case

STEPS = 10
SHAPES = {"a": [3, 2], "b": [4]}


def cases():
    return [record(name, optimizer) for name, optimizer in optimizers()] + schedules()


def optimizers():
    decay = K.schedules.ExponentialDecay(0.1, decay_steps=4, decay_rate=0.5)
    rows = [
        ("sgd", K.SGD(0.1)),
        ("sgd_momentum", K.SGD(0.1, momentum=0.9)),
        ("sgd_nesterov", K.SGD(0.1, momentum=0.9, nesterov=True)),
        ("sgd_schedule", K.SGD(decay, momentum=0.9)),
        ("adam", K.Adam(0.05)),
        ("adam_betas", K.Adam(0.05, beta_1=0.5, beta_2=0.8, epsilon=1e-3)),
        ("adam_amsgrad", K.Adam(0.05, beta_2=0.8, amsgrad=True)),
        ("adam_schedule", K.Adam(decay)),
        ("adamw", K.AdamW(0.05, weight_decay=0.1)),
        ("adamw_amsgrad", K.AdamW(0.05, weight_decay=0.1, beta_2=0.8, amsgrad=True)),
        ("rmsprop", K.RMSprop(0.05)),
        ("rmsprop_momentum", K.RMSprop(0.05, momentum=0.8)),
        ("rmsprop_centered", K.RMSprop(0.05, centered=True)),
        ("rmsprop_centered_momentum", K.RMSprop(0.05, centered=True, momentum=0.8)),
        ("adagrad", K.Adagrad(0.1)),
        ("adadelta", K.Adadelta(1.0)),
        ("adamax", K.Adamax(0.05)),
        ("nadam", K.Nadam(0.05)),
        ("lion", K.Lion(0.01)),
    ]
    extras = {
        "clipnorm": {"clipnorm": 0.8},
        "clipvalue": {"clipvalue": 0.3},
        "global_clipnorm": {"global_clipnorm": 1.0},
        "weight_decay": {"weight_decay": 0.05},
        "ema": {"use_ema": True, "ema_momentum": 0.9},
        "ema_overwrite": {"use_ema": True, "ema_momentum": 0.9, "ema_overwrite_frequency": 4},
    }
    for suffix, extra in extras.items():
        rows.append((f"sgd_{suffix}", K.SGD(0.1, momentum=0.9, **extra)))
        rows.append((f"adam_{suffix}", K.Adam(0.05, **extra)))
    return rows


def record(name, optimizer):
    case = Case(name, **optimizer_settings(optimizer))
    variables = [keras.Variable(case.weight(key, shape, 1.0), name=key)
                 for key, shape in SHAPES.items()]
    grads = [case.uniform(f"grad_{key}", [STEPS] + shape) for key, shape in SHAPES.items()]

    history, averages = [[] for _ in variables], [[] for _ in variables]
    for step in range(STEPS):
        optimizer.apply([tf.constant(grad[step]) for grad in grads], variables)
        for j, variable in enumerate(variables):
            history[j].append(variable.numpy())
            if optimizer.use_ema:
                averages[j].append(optimizer._model_variables_moving_average[j].numpy())
    for key, values in zip(SHAPES, history):
        case.expect(f"{key}_after_step", np.stack(values))
    for key, values in zip(SHAPES, averages):
        if values:
            case.expect(f"{key}_average_after_step", np.stack(values))
    return case


def schedules():
    rate = {"initial_learning_rate": 0.1}
    rows = [
        ("exponential_decay", "ExponentialDecay",
         rate | {"decay_steps": 7, "decay_rate": 0.6, "staircase": False}),
        ("exponential_decay_staircase", "ExponentialDecay",
         rate | {"decay_steps": 7, "decay_rate": 0.6, "staircase": True}),
        ("piecewise_constant_decay", "PiecewiseConstantDecay",
         {"boundaries": [5, 12], "values": [0.1, 0.05, 0.01]}),
        ("polynomial_decay", "PolynomialDecay",
         rate | {"decay_steps": 20, "end_learning_rate": 0.01, "power": 2.0, "cycle": False}),
        ("polynomial_decay_cycle", "PolynomialDecay",
         rate | {"decay_steps": 8, "end_learning_rate": 0.01, "power": 1.0, "cycle": True}),
        ("cosine_decay", "CosineDecay",
         rate | {"decay_steps": 20, "alpha": 0.1, "warmup_target": None, "warmup_steps": 0}),
        ("cosine_decay_warmup", "CosineDecay",
         {"initial_learning_rate": 0.01, "decay_steps": 15, "alpha": 0.05, "warmup_target": 0.1,
          "warmup_steps": 5}),
        ("cosine_decay_restarts", "CosineDecayRestarts",
         rate | {"first_decay_steps": 6, "t_mul": 2.0, "m_mul": 0.8, "alpha": 0.02}),
        ("cosine_decay_restarts_equal", "CosineDecayRestarts",
         rate | {"first_decay_steps": 8, "t_mul": 1.0, "m_mul": 0.9, "alpha": 0.0}),
        ("inverse_time_decay", "InverseTimeDecay",
         rate | {"decay_steps": 6, "decay_rate": 0.5, "staircase": False}),
        ("inverse_time_decay_staircase", "InverseTimeDecay",
         rate | {"decay_steps": 6, "decay_rate": 0.5, "staircase": True}),
    ]
    result = []
    for name, kind, arguments in rows:
        case, schedule = Case(name, schedule=kind, **arguments), getattr(K.schedules, kind)(**arguments)
        rates = [float(keras.ops.convert_to_numpy(schedule(step))) for step in range(31)]
        case.expect("rate_at_step", np.array(rates, dtype=np.float32))
        result.append(case)
    return result
