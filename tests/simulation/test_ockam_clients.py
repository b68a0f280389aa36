"""Runs with clients on plain Ockam TCP and in secure channels."""

from collections import Counter

from rillnode.node.ockam.simulation.channel_users import ChannelUser
from rillnode.node.ockam.simulation.tcp_users import OckamTcpUser
from rillnode.node.simulation.run import Run
from simulated_ockam import SCENARIO


def test_all_of_them_push_and_pull_in_every_dialect_and_at_either_end() -> None:
    dialects, ways = Counter[str](), Counter[tuple[bool, bool]]()
    for seed in range(3):
        run = Run(SCENARIO, seed, only=[])
        assert run.run().violations == []
        for name, program in run.programs.items():
            if isinstance(program, ChannelUser):
                ways[program.far == program.node, program.plain] += 1
            elif isinstance(program, OckamTcpUser):
                dialects[program.dialect] += 1
            else:
                continue
            pushes = [one for one in run.history.pushes.values() if one.producer == f"{name}.1"]
            assert len(pushes) > 2
            assert all(push.index is not None for push in pushes)
            assert {push.log[0] for push in pushes} == {program.log_name}
    assert set(dialects) == {"u16", "2024"}
    assert set(ways) == {(False, False), (True, False), (True, True)}
