"""The suite for plug-ins, `PlugInContract`: what nodes and users expect of one."""

from rillnode.node.testing.contract.plug_ins.declared import Declarations
from rillnode.node.testing.contract.plug_ins.failures import Failures
from rillnode.node.testing.contract.plug_ins.life import Life
from rillnode.node.testing.contract.plug_ins.processes import Processes
from rillnode.node.testing.contract.plug_ins.shown import Shown
from rillnode.node.testing.contract.plug_ins.using import Used

__all__ = ["PlugInContract", "Used"]


class PlugInContract(Declarations, Life, Shown, Failures, Processes):
    """The suite for a plug-in: subclass it in the tests of the package that brings it.

    The package has to be installed, as its entry points are what a node finds.

        class TestSyslog(PlugInContract):
            name = "syslog"
            listeners = ("syslog",)
            actors = (PushingActor,)

            def tables(self, directory: Path) -> Sequence[PlugInTable]:
                return (SyslogTable(listen="127.0.0.1:0"),)

            async def use(self, used: Used) -> None:
                await send_a_message(used.addresses["syslog"])
                await wait_until_it_is_stored(used.client)

    Attributes:
        name: the plug-in's name, as its entry point has it.
        listeners: the names of the listeners that it binds with `tables`; what is asked of
            listeners is tested of these. The port of each is the `listen` of a table that is a
            `Listener`.
        actors: the classes of its own actors that `use` brings messages to. Each fails once at each
            of its messages, before and after it.
        scenario: the text of a scenario of `rillnode sim run` that has its clients; needed where
            the plug-in declares a simulated part.
        wrong: texts of configurations that are refused, each with the code of the error; the
            name is put before them.
    """
