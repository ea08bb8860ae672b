"""Calls of every kernel in each of its variants, small: they are compiled for a GPU (kernel_compile.py)."""

from collections.abc import Callable

import torch

from hotrow.kernels.backward import update_from_bags
from hotrow.kernels.codec import decode_rows, encode_rows
from hotrow.kernels.dot_interaction import dot_interaction
from hotrow.kernels.pool import pool
from hotrow.kernels.scatter import scatter
from hotrow.kernels.second_order import second_order
from hotrow.kernels.unique import reference_unique, unique
from hotrow.kernels.update import RowFields, UpdateRule, update_rows
from hotrow.kernels.update_tile import TableRows

RULES = [
    UpdateRule("sgd", lr=0.1, clip=1.0),
    UpdateRule("adagrad", lr=0.1),
    UpdateRule("adagrad", lr=0.1, eps_inside=True, swap_period=10, swap_decay=0.5),
    UpdateRule("rowwise_adagrad", lr=0.1, swap_period=10, swap_decay=0.5),
    UpdateRule("decayed_adagrad", lr=0.1, rate=0.9),
    UpdateRule("adam", lr=0.1, swap_period=10, swap_decay=0.5),
    UpdateRule("adam", lr=0.1, correction="global"),
]


def update() -> None:
    for rule in RULES:
        values, state = torch.zeros(8, 64), torch.zeros(8, rule.state_dim(64))
        fields = RowFields(*torch.zeros(4, 8, dtype=torch.int32))
        update_rows(rule, values, state, torch.arange(8), torch.zeros(8, 64), fields)
    update_rows(RULES[1], torch.zeros(8, 17), torch.zeros(8, 17), torch.arange(8), torch.zeros(8, 17))


def backward() -> None:
    found, gradients = reference_unique(torch.arange(300)), torch.zeros(300, 64)
    for rule in RULES:
        fields = RowFields(*torch.zeros(8, 4, dtype=torch.int32).unbind(1))
        refused = torch.zeros(1, dtype=torch.int64)
        rows = TableRows("", rule, torch.zeros(8, 64), torch.zeros(8, rule.state_dim(64)), fields, refused)
        update_from_bags(rows, torch.arange(300), found, gradients, missing=refused.new_zeros(2))


def fold() -> None:
    unique(torch.arange(300))


def pooling() -> None:
    offsets, slots = torch.tensor([0, 150, 300]), torch.arange(300)
    values = torch.zeros(300, 64)
    pool(values, slots, dtype=torch.bfloat16)
    pool(values, slots, slots.int(), offsets, "mean")
    found = reference_unique(slots)
    scatter(found, values)
    scatter(found, torch.zeros(300, 1024))
    scatter(found, values[:2].bfloat16(), offsets, "mean")


def codec() -> None:
    decode_rows(*encode_rows(torch.zeros(8, 64)))


def interactions() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        rows = torch.zeros(4, 26, 64, dtype=dtype, requires_grad=True)
        dense = torch.zeros(4, 64, dtype=dtype, requires_grad=True)
        for result in (dot_interaction(rows, dense), dot_interaction(rows), second_order(rows)):
            result.sum().backward()  # type: ignore[no-untyped-call]


CALLS: dict[str, Callable[[], None]] = {
    "update": update,
    "backward": backward,
    "fold": fold,
    "pooling": pooling,
    "codec": codec,
    "interactions": interactions,
}
