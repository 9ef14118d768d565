"""Work that goes on elsewhere when who began it leaves."""


class HandedOverError(Exception):
    """Raised to leave what goes on elsewhere: what is held for it is held on, under the name *holder*, for whoever is next.

    Not of ``domain.errors``: nothing has failed.
    """

    def __init__(self, holder: str) -> None:
        super().__init__(holder)
        self.holder = holder
