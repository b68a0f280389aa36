"""States what whatever makes actors run promises: the table in "When an actor fails", and more.

class TestMine(EngineContract):
@asynccontextmanager
async def running(self):
engine = MyEngine()
yield engine
await engine.shutdown()

async def pass_time(self, seconds):
await asyncio.sleep(seconds)
"""

from rillnode.node.testing.contract.engines.asking import AskingContract
from rillnode.node.testing.contract.engines.bounds import BoundsContract
from rillnode.node.testing.contract.engines.failing import FailingContract
from rillnode.node.testing.contract.engines.living import LivingContract
from rillnode.node.testing.contract.engines.messages import MessagesContract
from rillnode.node.testing.contract.engines.stopping import StoppingContract
from rillnode.node.testing.contract.engines.timing import TimingContract
from rillnode.node.testing.contract.engines.waiting import WaitingContract

__all__ = ["EngineContract", "TimedEngineContract"]


class EngineContract(
    AskingContract,
    MessagesContract,
    WaitingContract,
    FailingContract,
    LivingContract,
    BoundsContract,
    StoppingContract,
):
    """Each question has one outcome, messages keep their order, and a failure costs its message.

    A subclass gives `running` and `pass_time`.
    """


class TimedEngineContract(EngineContract, TimingContract):
    """The same, and what needs a clock that stands still unless `pass_time` is called."""
