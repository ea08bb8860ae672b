"""Several labels from one input: a shared bottom (Caruana 1997), or experts mixed per label (MMoE, Ma et al. 2018)."""

import torch
from torch import Tensor, nn

from hotrow.models.layers import MLP, Activation, Dropout, Hidden, Units
from hotrow.models.reading import side_by_side, width
from hotrow.nn.inputs import Inputs, InputShape


class SharedBottom(nn.Module):
    """odds_k = tower_k(bottom(rows, numbers)), [samples, labels]."""

    def __init__(
        self,
        shape: InputShape,
        *,
        labels: Units = 2,
        bottom: Hidden = (256, 128),
        tower: Hidden = (64,),
        activation: Activation = "relu",
        dropout: Dropout = 0.0,
    ) -> None:
        super().__init__()
        self.bottom = MLP(width(shape, "shared_bottom"), bottom, activation=activation, dropout=dropout)
        self.towers = _towers(labels, self.bottom.width, tower, activation)

    def forward(self, x: Inputs) -> Tensor:
        shared = self.bottom(side_by_side(x))
        return torch.cat([tower(shared) for tower in self.towers], 1)


class MMoE(nn.Module):
    """odds_k = tower_k(sum over experts i of g_ki * expert_i(x)), g_k = softmax(W_k x); x = (rows, numbers)."""

    def __init__(
        self,
        shape: InputShape,
        *,
        labels: Units = 2,
        experts: Units = 8,
        expert: Hidden = (16,),
        tower: Hidden = (8,),
        activation: Activation = "relu",
        dropout: Dropout = 0.0,
    ) -> None:
        super().__init__()
        inputs = width(shape, "mmoe")
        self.experts = nn.ModuleList(
            [MLP(inputs, expert, activation=activation, dropout=dropout) for _ in range(experts)]
        )
        self.gates = nn.Linear(inputs, labels * experts, bias=False)  # all labels' gates in one product
        self.towers = _towers(labels, expert[-1] if expert else inputs, tower, activation)

    def forward(self, x: Inputs) -> Tensor:
        features = side_by_side(x)
        opinions = torch.stack([expert(features) for expert in self.experts], 1)  # [samples, experts, units]
        gates = self.gates(features).unflatten(1, (len(self.towers), len(self.experts))).softmax(2)
        mixed = gates @ opinions  # [samples, labels, units]
        return torch.cat([tower(mixed[:, label]) for label, tower in enumerate(self.towers)], 1)


def _towers(labels: int, inputs: int, hidden: Hidden, activation: Activation) -> nn.ModuleList:
    return nn.ModuleList([MLP(inputs, hidden, 1, activation=activation) for _ in range(labels)])
