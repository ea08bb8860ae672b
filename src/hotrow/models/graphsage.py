"""GraphSAGE (Hamilton et al. 2017) over embeddings of node ids: a node is what it is and what is around it."""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from hotrow.errors import ConfigError, InputError
from hotrow.models.layers import Dropout, Switch, Units, masked_mean
from hotrow.models.reading import chosen, no_sequences
from hotrow.nn.inputs import Inputs, InputShape


class GraphSAGE(nn.Module):
    """h_v <- normalised relu(W [h_v, mean of the neighbours' h] + b), once per hop; scores = linear(h_v, all else).

    `node` is the id feature, `hops` the sequences from near to far: all there are, in their order, if left out. A hop
    holds equally many neighbours of every node of the hop before, one node's behind the other's, as
    `hotrow.data.graph.Neighbourhoods` gives them. The output is [samples, classes], the label the class's number.
    """

    task = "classification"  # of its own loss

    def __init__(
        self,
        shape: InputShape,
        *,
        classes: Units,
        node: str | None = None,
        hops: tuple[str, ...] | None = None,
        hidden: Units = 128,
        dropout: Dropout = 0.0,
        normalise: Switch = True,
    ) -> None:
        super().__init__()
        self.node = chosen("node", node, shape.fields, "id feature")
        self.hops = [chosen("hops", hop, shape.sequences, "sequence") for hop in (hops or shape.sequences)]
        no_sequences(shape, "graphsage", but=self.hops)
        dims = {name: (shape.fields | shape.sequences)[name] for name in (self.node, *self.hops)}
        if not self.hops or len(set(dims.values())) > 1:
            raise ConfigError(
                f"graphsage needs sequences of neighbours with rows as long as the node's; dims are {dims}"
            )
        self.others = [name for name in shape.fields if name != self.node]
        widths = [dims[self.node], *[hidden] * len(self.hops)]
        self.layers = nn.ModuleList([nn.Linear(2 * width, hidden) for width in widths[:-1]])
        self.dropout, self.normalise = nn.Dropout(dropout), normalise
        self.top = nn.Linear(hidden + shape.numbers + sum(shape.fields[name] for name in self.others), classes)

    def forward(self, x: Inputs) -> Tensor:
        sequences = [x.sequence(hop) for hop in self.hops]
        levels = [x[self.node].unsqueeze(1), *(hop.rows for hop in sequences)]  # each [samples, nodes, width]
        for name, near, far in zip(self.hops, levels, levels[1:], strict=False):
            nodes, neighbours = near.shape[1], far.shape[1]
            if not nodes or neighbours % nodes:
                raise InputError(f"sequence {name!r}: {neighbours} neighbours of {nodes} nodes: give each as many")
        for layer in self.layers:
            pairs = zip(levels, levels[1:], [hop.mask for hop in sequences], strict=False)
            levels = [self._layer(layer, near, far, mask) for near, far, mask in pairs]
        scores: Tensor = self.top(torch.cat([levels[0].squeeze(1), *(x[name] for name in self.others), x.numbers], 1))
        return scores

    def loss(self, output: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
        classes = labels[:, 0].long()
        if weights is None:
            return cross_entropy(output, classes)
        return (weights * cross_entropy(output, classes, reduction="none")).mean()

    def probabilities(self, output: Tensor) -> Tensor:
        return torch.softmax(output, 1)

    def _layer(self, layer: nn.Module, nodes: Tensor, neighbours: Tensor, mask: Tensor) -> Tensor:
        count, of_each = nodes.shape[1], neighbours.shape[1] // nodes.shape[1]
        around = masked_mean(neighbours.view(-1, count, of_each, nodes.shape[2]), mask.view(-1, count, of_each))
        states = torch.relu(layer(self.dropout(torch.cat([nodes, around], 2))))
        return normalize(states, dim=2) if self.normalise else states
