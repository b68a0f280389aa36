from matplotlib import Colour

class Patch:
    def __init__(self, *, color: Colour, label: str) -> None: ...
