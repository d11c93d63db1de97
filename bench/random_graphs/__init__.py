"""Random valid graphs, compared with the engine of their format: a campaign that looks for wrong results.

    python -m bench.random_graphs --count N --seed S [--format tflite|onnx|both] [--jobs 2] [--out DIR]

`generate("tflite", seed, index)` gives a `Case`: a `Description` of a graph (values and typed nodes) and the bytes of the
model. The same three arguments give the same case. Every case is compiled in a random mode, built with the sanitizers, and
run on a few inputs; the outputs are compared with the engine's by the rules of `emitc verify`. A case that fails is cut down
by `shrink`.

A format is a subpackage, `bench.random_graphs.tflite` or `bench.random_graphs.onnx`, with two functions:

    draw(rng: numpy.random.Generator) -> Description     a valid graph; raises nothing
    write(description: Description) -> bytes              the file; ValueError where the format cannot express it

What a description has to keep to, so that every format shares the runner and the shrinker:

- Every shape is known and fixed. Constants have their bytes in `Value.data`; other values have none.
- Nodes are in an order in which they can run. An operand that is left out is the empty name.
- A graph inside an operator (a branch, the body of a loop) is a `Description` among its node's attributes.
- `Value.bounds` limits what a value may hold where it is given from outside, as indices need it. A node whose operand must
  not become an input of the graph (a shape, an axis) has that operand as a constant.

The shrinker keeps some of the nodes (`Description.keeping`). Values that no kept node computes become inputs of the graph,
and values that no kept node reads become outputs. A candidate that the engine refuses is not a failure, so that such cuts
need not be valid.

`metamorphic` needs no engine: options that change no bit, and `identities`, operators that change nothing.

`modes` draws the options, `inputs` the numbers, `judge` compares, `records` counts, and `campaign` runs it all in processes
that may crash. The folder given by --out holds the state: a campaign that was stopped goes on where it was.
"""

from bench.random_graphs.case import Attribute, Case, Description, Node, Value
from bench.random_graphs.formats import FORMATS, generate
from bench.random_graphs.shrink import shrink

__all__ = ["FORMATS", "Attribute", "Case", "Description", "Node", "Value", "generate", "shrink"]
