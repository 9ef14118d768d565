"""``python -m demo.embedded_stack``: bring the jars into the cache and archive the classes of Spark, as ``make setup`` does."""

import sys

from demo.embedded_stack import class_archive, jars
from demo.embedded_stack.errors import StackError

if __name__ == "__main__":
    try:
        for each in jars.OF_SETUP:
            jars.fetch(each, print)
        class_archive.make(print)
    except StackError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
