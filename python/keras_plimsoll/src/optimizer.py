"""Keras' optimizers, with an update in place where the engine has their rule: one pass over a variable and its slots.

What it computes is what `update_step` of the class writes out, weight decay included. Where a rule does not apply (another
optimizer, a type other than float32, updates that are to be returned and not to happen), `update_step` runs as it stands.
"""

from keras.src.backend.common.stateless_scope import in_stateless_scope
from keras.src.optimizers import base_optimizer
from plimsoll import _engine as engine

from keras_plimsoll.src.core import Variable
from keras_plimsoll.src.core import convert_to_tensor

# Module of an `update_step` -> name of the rule, the optimizer's lists of slots, the names of its constants.
_RULES = {
    "keras.src.optimizers.sgd": ("sgd", ["momentums"], ["momentum", "nesterov"]),
    "keras.src.optimizers.adam": (
        "adam",
        ["_momentums", "_velocities", "_velocity_hats"],
        ["beta_1", "beta_2", "epsilon", "amsgrad"],
    ),
    "keras.src.optimizers.rmsprop": (
        "rmsprop",
        ["_velocities", "_momentums", "_average_gradients"],
        ["rho", "momentum", "epsilon", "centered"],
    ),
    "keras.src.optimizers.adagrad": ("adagrad", ["_accumulators"], ["epsilon"]),
    "keras.src.optimizers.adadelta": ("adadelta", ["_accumulated_grads", "_accumulated_delta_vars"], ["rho", "epsilon"]),
    "keras.src.optimizers.adamax": ("adamax", ["_m", "_u"], ["beta_1", "beta_2", "epsilon"]),
    "keras.src.optimizers.lion": ("lion", ["_momentums"], ["beta_1", "beta_2"]),
}


class PlimsollOptimizer(base_optimizer.BaseOptimizer):
    """The base of `keras.Optimizer` on this backend."""

    def _rule(self, variable):
        """The rule of the engine that updates this variable, or None."""
        rule = _RULES.get(type(self).update_step.__module__)
        if rule is None or in_stateless_scope():
            return None
        return rule if isinstance(variable, Variable) and variable.dtype == "float32" else None

    def _apply_weight_decay(self, variables):
        # A rule decays as it updates.
        super()._apply_weight_decay([v for v in variables if self._rule(v) is None])

    def _decay(self, variable):
        """The share of the variable that its rule takes away, before the learning rate."""
        ours = type(self)._apply_weight_decay is PlimsollOptimizer._apply_weight_decay
        return self.weight_decay if ours and self.weight_decay and self._use_weight_decay(variable) else 0.0

    def _backend_update_step(self, grads, trainable_variables, learning_rate):
        number = None
        for gradient, variable in zip(grads, trainable_variables):
            rule = self._rule(variable)
            if rule is None:
                self.update_step(gradient, variable, learning_rate)
                continue
            if number is None:
                rate = convert_to_tensor(learning_rate, "float32")
                number = convert_to_tensor(self.iterations + 1, "float32")
            name, lists, constants = rule
            place = self._get_variable_index(variable)
            slots = [slots[place]._value for slots in (getattr(self, name, None) for name in lists) if slots]
            options = {name: getattr(self, name) for name in constants}
            options["weight_decay"] = self._decay(variable)
            gradient = convert_to_tensor(gradient, "float32")
            engine.optimize(name, variable._value, slots, gradient, rate, number, options)
