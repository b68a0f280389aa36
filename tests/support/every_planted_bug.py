"""Lists all planted mistakes, in the order of docs/reference/simulation.md."""

from planted_bugs import PLANTED, Planted
from planted_channel_bugs import PLANTED_CHANNELS
from planted_further_bugs import PLANTED_FURTHER
from planted_last_bugs import PLANTED_LAST
from planted_lasting_bugs import PLANTED_LASTING
from planted_link_bugs import PLANTED_LINKS
from planted_overlay import PlantedOverlay
from planted_rarer_bugs import PLANTED_RARER
from planted_service_bugs import PLANTED_SERVICES
from planted_shared_work_bugs import PLANTED_SHARED_WORK
from planted_store_bugs import PLANTED_STORE
from rooms import modules

ALL: tuple[Planted | PlantedOverlay, ...] = (
    *PLANTED,
    *PLANTED_STORE,
    *PLANTED_SERVICES,
    *PLANTED_LASTING,
    *PLANTED_RARER,
    *PLANTED_LINKS,
    *PLANTED_CHANNELS,
    *(one for module in modules("planted") for one in module.PLANTED),
    *PLANTED_FURTHER,
    *PLANTED_LAST,
    *PLANTED_SHARED_WORK,
)
