"""Three machines, each with a NATS server and a node, whose networks tests can cut."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from nats_support import NatsServer
from netns_support import Machine, Network
from node_processes import NodeProcess

MORE = '[log]\nlevel = "info"\n'
"""Of each node's configuration."""


@dataclass
class Cluster:
    """Three machines.

    Attributes:
        disk: where the last server has its data; small where it is to be filled.
    """

    disk: Path
    machines: list[Machine] = field(default_factory=list[Machine])
    servers: list[NatsServer] = field(default_factory=list[NatsServer])
    nodes: list[NodeProcess] = field(default_factory=list[NodeProcess])

    def start(self) -> None:
        """Start all of them; the nodes wait until the servers have elected who leads."""
        for server in self.servers:
            server.start()
        for node in self.nodes:
            node.start(wait=False)
        for node in self.nodes:
            node.wait()

    def kill(self) -> None:
        """End all of them."""
        for node in self.nodes:
            node.kill()
        for server in self.servers:
            server.kill()


def make_cluster(
    space: Network,
    directory: Path,
    disk: Path,
    *,
    more: Callable[[str], str] = lambda host: MORE,
    program: tuple[str, ...] = ("-m", "rillnode"),
) -> Cluster:
    """Three machines whose servers know each other, and whose nodes ask their own one first.

    Args:
        space: where the machines are.
        directory: of all that they keep.
        disk: where the last server has its data.
        more: of a node's configuration, by its address.
        program: how Python is told to run a node.
    """
    cluster = Cluster(disk)
    cluster.machines = [space.machine() for _ in range(3)]
    routes = ", ".join(f'"nats://{machine.host}:6222"' for machine in cluster.machines)
    for number, machine in enumerate(cluster.machines):
        cluster.servers.append(
            NatsServer(
                directory / f"nats-{number}",
                f"server_name: n{number}",
                f"cluster {{ name: rill, listen: {machine.host}:6222, routes: [{routes}] }}",
                host=machine.host,
                command=machine.command,
            )
        )
    for number, machine in enumerate(cluster.machines):
        node = NodeProcess(
            directory / f"node-{number}",
            cluster.servers[number:] + cluster.servers[:number],
            listen=f"{machine.host}:4100",
            replicas=3,
            command=machine.command,
            program=program,
            more=more(machine.host),
        )
        cluster.nodes.append(node)
    return cluster
