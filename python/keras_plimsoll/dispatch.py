"""One more branch in the syntax trees of the modules in which Keras chooses its backend."""

import ast


def add_branch(tree, module, name, statements):
    """Puts our branch before the last arm of the module's one chain over `backend()`, which is a `raise` or a class for all others."""
    chains = [node for node in tree.body if isinstance(node, ast.If) and _is_chain(node)]
    if len(chains) != 1:
        raise ImportError(
            f"{module} of the installed keras chooses its backend in {len(chains)} places instead of one; "
            "this version of plimsoll does not know it"
        )
    last = chains[0]
    while len(last.orelse) == 1 and isinstance(last.orelse[0], ast.If):
        last = last.orelse[0]
    test = _renamed(last.test, module, name)
    last.orelse = [ast.If(test=test, body=ast.parse(statements).body, orelse=last.orelse)]


def _is_chain(node):
    while len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
        node = node.orelse[0]
    ends = len(node.orelse) == 1 and isinstance(node.orelse[0], (ast.Raise, ast.ClassDef))
    return bool(_backend_name(node.test)) and ends


def add_wrappers(tree, module, wrappers):
    """Replaces functions and classes of the module by what our functions make of them."""
    for name, ours in wrappers.items():
        if not any(isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name for node in tree.body):
            raise ImportError(f"{module} of the installed keras has no `{name}`; this version of plimsoll does not know it")
        source, function = ours.rsplit(".", 1)
        tree.body += ast.parse(f"import {source}\n{name} = {source}.{function}({name})").body


def add_tensorflow(tree, module):
    """Lets TensorFlow be ours wherever the module imports it."""

    class Imports(ast.NodeTransformer):
        found = False

        def visit_ImportFrom(self, node):
            if node.module != "keras.src.utils.module_utils" or node.names[0].name != "tensorflow":
                return node
            self.found = True
            return ast.Import(names=[ast.alias(name="plimsoll", asname=node.names[0].asname or "tensorflow")])

    imports = Imports()
    imports.visit(tree)
    if not imports.found:
        raise ImportError(f"{module} of the installed keras does not import TensorFlow; this version of plimsoll does not know it")


def _backend_name(test):
    """The text that a test like `backend() == "openvino"` compares with, or None."""
    if not (isinstance(test, ast.Compare) and isinstance(test.left, ast.Call) and len(test.comparators) == 1):
        return None
    called = ast.unparse(test.left)
    right = test.comparators[0]
    is_text = isinstance(right, ast.Constant) and isinstance(right.value, str)
    return right.value if is_text and called in ("backend()", "backend.backend()") else None


def _renamed(test, module, name):
    if not _backend_name(test):
        raise ImportError(f"{module}: expected a comparison with a backend's name, found `{ast.unparse(test)}`")
    ours = ast.parse(ast.unparse(test), mode="eval").body
    ours.comparators = [ast.Constant(name)]
    return ours


def add_dynamic(tree, module, name):
    """Lets `DynamicBackend`, which the preprocessing layers use, find our functions."""
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "DynamicBackend"]
    methods = {m.name: m for c in classes for m in c.body if isinstance(m, ast.FunctionDef)}
    if len(classes) != 1 or not {"__getattr__", "set_backend"} <= set(methods):
        raise ImportError(f"{module} of the installed keras has no DynamicBackend as this version of plimsoll knows it")
    branch = f"""
if self._backend == {name!r}:
    return getattr(importlib.import_module("keras_plimsoll.src"), name)
"""
    methods["__getattr__"].body[:0] = ast.parse(branch).body
    allow = f"""
if backend == {name!r}:
    self._backend = backend
    return
"""
    methods["set_backend"].body[:0] = ast.parse(allow).body
