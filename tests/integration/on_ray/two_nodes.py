"""A short Sync run on two raylets, with its roles spread over both; prints what it came to. Run as a program."""

import json

import ray
from ray._private import state
from ray.cluster_utils import Cluster

import hotrow as hr
from hotrow.runtime.ray.authentication import token_authentication
from integration.on_ray.small_cluster import batches, joined, losses, trainer_of


def main() -> None:
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    nodes.add_node(num_cpus=2)
    nodes.wait_for_nodes()
    try:
        trainer = trainer_of(hr.Ray(address=nodes.address, trainers=2, shards=1, bind="node", security="key"))
        data = batches(40, 8)
        found = losses(trainer.fit(data))
        assert trainer.cluster is not None
        node_of = {each["Pid"]: each["Address"]["NodeID"] for each in state.actors().values()}
        where = {name: (node_of[place.pid], place.address) for name, place in trainer.cluster.roles.items()}
        trainer.close()
        expected = losses(trainer_of().fit(joined(data, 16)))
        told = {"found": found, "expected": expected, "where": where, "ended": not ray.is_initialized()}
        print(json.dumps(told))
    finally:
        nodes.shutdown()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    with token_authentication():
        main()
