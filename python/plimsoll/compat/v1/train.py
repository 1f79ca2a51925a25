"""`tf.compat.v1.train`: optimizers of v1 graphs."""

from plimsoll import _engine as engine
from plimsoll._graph import GraphTensor


class Optimizer:
    """A rule that changes variables against their gradients."""

    _rule, _slots = None, 0

    def __init__(self, learning_rate, options=None):
        self._rate, self._options = learning_rate, options or {}
        self._held, self._steps = {}, 0

    def minimize(self, loss, global_step=None, var_list=None, **kwargs):
        """A node that does one step."""
        return self.apply_gradients(self.compute_gradients(loss, var_list), global_step)

    def compute_gradients(self, loss, var_list=None, **kwargs):
        """Gradients and variables, in pairs."""
        from plimsoll.compat.v1 import trainable_variables

        variables = list(var_list or trainable_variables())
        both = GraphTensor(lambda run: engine.gradients([run(loss)], [v.variable for v in variables]))
        part = lambda i: GraphTensor(lambda run: run(both)[i])
        return [(part(i), v) for i, v in enumerate(variables)]

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        """A node that changes the variables."""
        pairs = list(grads_and_vars)

        def step(run):
            self._steps += 1
            for gradient, v in [(run(g), v) for g, v in pairs]:
                if gradient is not None:
                    slots = self._held.setdefault(id(v), self._make_slots(v.variable))
                    rate = float(run(self._rate))
                    number = engine.tensor(float(self._steps), "float32")
                    engine.optimize(self._rule, v.variable, slots, gradient, engine.tensor(rate, "float32"), number, self._options)
            if global_step is not None:
                global_step.variable.assign_add(1)

        return GraphTensor(step)

    def _make_slots(self, variable):
        zero = lambda: engine.Variable(engine.full(variable.shape, 0, variable.dtype.name), "slot", False)
        return [zero() for _ in range(self._slots)]


class GradientDescentOptimizer(Optimizer):
    """Steps against the gradient."""

    _rule = "sgd"

    def __init__(self, learning_rate, use_locking=False, name="GradientDescent"):
        super().__init__(learning_rate)


class MomentumOptimizer(Optimizer):
    """Steps with momentum."""

    _rule, _slots = "sgd", 1

    def __init__(self, learning_rate, momentum, use_locking=False, name="Momentum", use_nesterov=False):
        super().__init__(learning_rate, {"momentum": float(momentum), "nesterov": bool(use_nesterov)})


class AdamOptimizer(Optimizer):
    """Adam."""

    _rule, _slots = "adam", 2

    def __init__(self, learning_rate=0.001, beta1=0.9, beta2=0.999, epsilon=1e-8, use_locking=False, name="Adam"):
        super().__init__(learning_rate, {"beta_1": beta1, "beta_2": beta2, "epsilon": epsilon})


def get_or_create_global_step(graph=None):
    """A variable that counts steps."""
    from plimsoll.compat.v1 import get_variable
    from plimsoll.compat.v1 import zeros_initializer

    return get_variable("global_step", [], "int64", zeros_initializer(), trainable=False)
