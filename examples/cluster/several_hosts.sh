#!/usr/bin/env bash
# Train one config on several hosts: starts Ray on each of them over ssh, trains, and stops Ray again.
#
#     HOSTS="node1 node2 node3" TRAINERS=3 SHARDS=3 ./several_hosts.sh mine/train.toml [options of `hotrow train`]
#
# Run it on the first host of the list: the run itself (reading data, checkpoints, evaluation) is a process there.
# What every host needs beforehand:
#   - the same Python environment with hotrow[ray] at the same path (HOTROW_BIN, the folder that holds hotrow and ray);
#   - ssh from the first host without a question, and open TCP ports between all hosts: 6379 for Ray, and any port for
#     Ray's and Hotrow's processes (or a firewall that lets these hosts talk to each other freely);
#   - a model of your own (model.name = "file.py:Class") at the same path; the data only on the first host.
# Ray runs code for whoever has its token, so one is made for this run. It reaches the other hosts through ssh, and is
# neither in a file nor in a command line. Between the hosts it travels in the clear: keep these in a network of their own.
# The rows travel between hosts as plain bytes. Where somebody else can listen, add --set run.engine.security=curve.
set -euo pipefail

: "${HOSTS:?set HOSTS to the names of the hosts, the first one being this machine}"
CONFIG=${1:?usage: HOSTS="node1 node2" $0 FILE.toml [options of hotrow train]}
shift

read -r -a hosts <<<"$HOSTS"
TRAINERS=${TRAINERS:-${#hosts[@]}}
SHARDS=${SHARDS:-${#hosts[@]}}
PORT=${PORT:-6379}
HOTROW_BIN=${HOTROW_BIN:-$(dirname "$(command -v hotrow)")}
HEAD_ADDRESS=${HEAD_ADDRESS:-$(hostname -I | cut -d' ' -f1)} # by which the other hosts reach this one

stop_all() {
    for host in "${hosts[@]:1}"; do
        ssh "$host" "'$HOTROW_BIN/ray' stop" >/dev/null || echo "could not stop Ray on $host" >&2
    done
    "$HOTROW_BIN/ray" stop >/dev/null
}
trap stop_all EXIT # also after a fault or Ctrl-C

RAY_AUTH_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN
unset RAY_AUTH_TOKEN_PATH

# The head, then everybody else. Ray counts the cores of each host by itself; --num-cpus says another number, and
# --resources '{"rows": 1}' marks hosts with much memory, for engine.shard.custom = { rows = 1 } in the config.
"$HOTROW_BIN/ray" start --head --node-ip-address="$HEAD_ADDRESS" --port="$PORT" --include-dashboard=false
for host in "${hosts[@]:1}"; do
    # The token comes by standard input: an argument would be seen in the list of processes.
    ssh "$host" "read -r RAY_AUTH_TOKEN && export RAY_AUTH_MODE=token RAY_AUTH_TOKEN && unset RAY_AUTH_TOKEN_PATH &&
        '$HOTROW_BIN/ray' start --address='$HEAD_ADDRESS:$PORT'" <<<"$RAY_AUTH_TOKEN"
done

# bind = "node": roles listen where other hosts reach them, and not on loopback alone. A key is made for this run
# unless the config names one; Ray brings it to the roles.
"$HOTROW_BIN/hotrow" train "$CONFIG" \
    --engine ray --address "$HEAD_ADDRESS:$PORT" --trainers "$TRAINERS" --shards "$SHARDS" \
    --set run.engine.bind=node "$@"
