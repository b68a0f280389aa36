from datetime import timedelta

class ExpirationTimer:
    duration: timedelta | float | None
    def __init__(self, duration: timedelta | float | None = ...) -> None: ...
