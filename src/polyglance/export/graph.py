"""Writing an ONNX graph node by node.

What the model has learned lies in a graph under the names of its compact state
(`polyglance.nn.compression.compact_state`); the graph's own values and constants
begin with a slash. A graph can so be read back into the state it was made from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper, numpy_helper

Array = NDArray[Any]

OPSET = 20
"""The first with Gelu as one operator."""
_IR_VERSION = 9
"""The file format that goes with it: newer ones older runtimes refuse."""

_TYPES = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "uint8": TensorProto.UINT8}

Shape = Sequence[int | str]


class GraphWriter:
    """Collects the nodes, weights and ends of one graph.

    Every method that adds something returns the name of the value it makes.
    """

    def __init__(self, state: Mapping[str, Array]) -> None:
        self.state = state
        self._nodes: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []
        self._initialisers: dict[str, Any] = {}

    def input(self, name: str, kind: str, shape: Shape) -> str:
        """What the graph is given; a name in ``shape`` is a size that varies."""
        self._inputs.append(helper.make_tensor_value_info(name, _TYPES[kind], list(shape)))
        return name

    def output(self, value: str, name: str, kind: str, shape: Shape) -> None:
        """What the graph gives back, under its own name."""
        self._nodes.append(helper.make_node("Identity", [value], [name]))
        self._outputs.append(helper.make_tensor_value_info(name, _TYPES[kind], list(shape)))

    def node(self, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Apply an operator; an input that is left out is an empty name."""
        return self.nodes(operator, *inputs, outputs=1, domain=domain, **attributes)[0]

    def nodes(
        self, operator: str, *inputs: str, outputs: int, domain: str = "", **attributes: Any
    ) -> list[str]:
        """Apply an operator with several outputs."""
        made = [f"/{len(self._nodes)}/{operator}/{number}" for number in range(outputs)]
        self._nodes.append(helper.make_node(operator, inputs, made, domain=domain, **attributes))
        return made

    def constant(self, value: Any, kind: str) -> str:
        """A number or a list of them that belongs to the graph's own arithmetic."""
        array = np.asarray(value, kind)
        name = f"/{kind}{array.tolist()}".replace(" ", "")
        self._initialisers.setdefault(name, numpy_helper.from_array(array, name))
        return name

    def weight(self, name: str) -> str:
        """A tensor of the model as it is stored."""
        if name not in self._initialisers:
            array = np.ascontiguousarray(self.state[name])
            self._initialisers[name] = numpy_helper.from_array(array, name)
        return name

    def float_weight(self, name: str) -> str:
        """A tensor of the model in float32; the runtime widens a smaller one once, when loading."""
        stored = self.weight(name)
        if self.state[name].dtype == np.float32:
            return stored
        return self.node("Cast", stored, to=TensorProto.FLOAT)

    def model(self, name: str) -> ModelProto:
        """The finished graph."""
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


def stored_weights(model: ModelProto) -> dict[str, Array]:
    """The tensors of the model that a graph holds, by name."""
    return {
        tensor.name: numpy_helper.to_array(tensor)
        for tensor in model.graph.initializer
        if not tensor.name.startswith("/")
    }
