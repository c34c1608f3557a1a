"""Write an ONNX graph node by node.

The model's weights keep the names of its compact state
(`polyglance.nn.compression.compact_state`); names of the graph's own values and constants
begin with a slash. So a graph can be read back into the state it was made from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

Array = NDArray[Any]

OPSET = 20
"""The first with Gelu as a single operator."""
_IR_VERSION = 9
"""The matching file format; older runtimes refuse newer ones."""

_TYPES = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "uint8": TensorProto.UINT8}

Shape = Sequence[int | str]


class GraphWriter:
    """Collects the nodes, weights, inputs and outputs of one graph.

    Methods that add a value return its name.
    """

    def __init__(self, state: Mapping[str, Array]) -> None:
        """``state`` is the model's compact state, from which weights are taken by name."""
        self.state = state
        self._nodes: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []
        self._initialisers: dict[str, Any] = {}

    def input(self, name: str, kind: str, shape: Shape) -> str:
        """Declare an input; a string in ``shape`` names a dynamic dimension."""
        self._inputs.append(helper.make_tensor_value_info(name, _TYPES[kind], list(shape)))
        return name

    def input_shape(self, name: str) -> list[int]:
        """Return the shape of an input; 0 for a dynamic dimension."""
        [value] = [value for value in self._inputs if value.name == name]
        return [dimension.dim_value for dimension in value.type.tensor_type.shape.dim]

    def output(self, value: str, name: str, kind: str, shape: Shape) -> None:
        """Declare ``value`` as an output called ``name``."""
        self._nodes.append(helper.make_node("Identity", [value], [name]))
        self._outputs.append(helper.make_tensor_value_info(name, _TYPES[kind], list(shape)))

    def node(self, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Apply an operator with one output; an empty name omits an optional input."""
        return self.nodes(operator, *inputs, outputs=1, domain=domain, **attributes)[0]

    def nodes(
        self, operator: str, *inputs: str, outputs: int, domain: str = "", **attributes: Any
    ) -> list[str]:
        """Apply an operator with several outputs."""
        names = [f"/{len(self._nodes)}/{operator}/{number}" for number in range(outputs)]
        self._nodes.append(helper.make_node(operator, inputs, names, domain=domain, **attributes))
        return names

    def constant(self, value: Any, kind: str) -> str:
        """Add a number or a list of numbers."""
        array = np.asarray(value, kind)
        name = f"/{kind}{array.tolist()}".replace(" ", "")
        self._initialisers.setdefault(name, numpy_helper.from_array(array, name))
        return name

    def weight(self, name: str) -> str:
        """Add a tensor of the model in its stored dtype."""
        if name not in self._initialisers:
            array = np.ascontiguousarray(self.state[name])
            self._initialisers[name] = numpy_helper.from_array(array, name)
        return name

    def float_weight(self, name: str) -> str:
        """Add a tensor of the model in float32; the runtime casts a smaller one once, at load."""
        weight = self.weight(name)
        if self.state[name].dtype == np.float32:
            return weight
        return self.node("Cast", weight, to=TensorProto.FLOAT)

    def inline(self, model: ModelProto, prefix: str, inputs: Mapping[str, str]) -> list[str]:
        """Add all nodes of another graph, whose matrices are then stored in float16.

        Args:
            model: The graph; its opset must be ours.
            prefix: Of the names of its weights.
            inputs: The values of this graph that its inputs are.

        Returns:
            The names of its outputs.
        """
        place = len(self._nodes)
        names = {"": "", **inputs}

        def own(name: str) -> str:
            return names.setdefault(name, f"/{place}/{name}")

        for tensor in model.graph.initializer:
            array = numpy_helper.to_array(tensor)
            weight = f"{prefix}.{tensor.name}"
            is_matrix = array.dtype == np.float32 and array.ndim > 1
            kept = array.astype(np.float16) if is_matrix else array
            self._initialisers[weight] = numpy_helper.from_array(kept, weight)
            cast = self.node("Cast", weight, to=TensorProto.FLOAT) if is_matrix else weight
            names[tensor.name] = cast
        for node in model.graph.node:
            copied = NodeProto()
            copied.CopyFrom(node)
            copied.name = ""
            copied.input[:] = [own(name) for name in node.input]
            copied.output[:] = [own(name) for name in node.output]
            self._nodes.append(copied)
        return [own(value.name) for value in model.graph.output]

    def build(self, name: str) -> ModelProto:
        """Return the finished graph."""
        graph = helper.make_graph(
            self._nodes,
            name,
            self._inputs,
            self._outputs,
            initializer=list(self._initialisers.values()),
        )
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(
            graph, opset_imports=opsets, ir_version=_IR_VERSION, producer_name="polyglance"
        )
