"""What the laws refuse."""


class PhysicsError(ValueError):
    """Root of the errors of this package."""


class ImpossibleArgumentError(PhysicsError):
    """An argument that no real system can have: NaN, infinite, or outside its range."""

    def __init__(self, argument: str, requirement: str) -> None:
        super().__init__(f"{argument} must be {requirement}")
        self.argument = argument
        self.requirement = requirement
