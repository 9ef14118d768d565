"""What an error says of a cell in place of its value: errors go into logs and reports, and a target may mask the column."""


def withheld(value: object) -> str:
    """What kind of value *value* is and, of a text or bytes, how long."""
    match value:
        case str():
            return f"a text of {_counted(len(value), 'character')}"
        case bytes() | bytearray() | memoryview():
            return f"a value of {_counted(len(value), 'byte')}"
        case None:
            return "NULL"
        case bool() | int() | float():
            return f"a number ({type(value).__name__})"
    return f"a value of type {type(value).__name__}"


def _counted(number: int, unit: str) -> str:
    return f"{number} {unit}" + ("" if number == 1 else "s")
