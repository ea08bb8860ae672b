"""Training on a real cluster under random faults, and a ledger of what became of every sample.

plan           pure: which faults, when
links          proxies between roles that delay and cut connections
injection      performs the plan on the roles of a run
counting       training whose rows count how often each sample was applied
ledger         pure: these counts beside what the run has reported
learning       a click model with faults and without: AUC by pairs
leftovers      processes, ports and segments that a run has left behind
run            all of it, from a seed
"""
