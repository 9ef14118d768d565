"""The errors of the library: one root, then permanent and transient ones. Messages say what, where, and what to do.

An error takes exactly one positional argument, its message: Spark and Airflow pickle errors between processes.
"""


class TicdcReplayError(Exception):
    """Root of every error this library raises on purpose."""


class PermanentError(TicdcReplayError):
    """Trying again without changing something gives the same error."""


class TransientError(TicdcReplayError):
    """The same call may succeed later: a server was away, a lock was held, a request was throttled."""


class ConfigError(PermanentError):
    """A configuration value is wrong; the message names file, key and allowed values."""


class SecretInConfigError(ConfigError):
    """A secret stands where others can read it; the message names the connection field it belongs to."""


class ExpiredRangeError(PermanentError):
    """Kafka no longer holds a part of the range; the message names the oldest time that can be replayed."""


class NotCoveredError(PermanentError):
    """A window was to be derived from changelogs, and they do not hold all of it; the message says what is missing, and why."""


class TopicChangedError(PermanentError):
    """A topic vanished, was recreated, or lost partitions since it was pinned."""


class UnprovenWindowError(PermanentError):
    """The completeness of a window can't be shown, and the policy asks for proof."""


class WindowBoundsError(PermanentError):
    """A window reaches beyond what the changefeed sent; the message names the bound."""


class WatermarkNotReachedError(TransientError):
    """A live partition has not carried a resolved-ts at or after the end of the window yet."""


class ArtifactExistsError(PermanentError):
    """A create-once artefact exists already with other content."""


class ArtifactNotFoundError(PermanentError):
    """An artefact, or an object of the claim-check store, does not exist."""


class ArtifactCorruptError(PermanentError):
    """An artefact's content does not have the hash in its name."""


class MissingAbilityError(PermanentError):
    """A store, file system or database lacks something that is relied upon; the message names it."""


class ObjectTooLargeError(PermanentError):
    """An object is larger than the cap that the caller set."""


class ObjectAlteredError(PermanentError):
    """An object does not have the ETag that the caller expects."""


class AuthenticationError(PermanentError):
    """A server refused the credentials; the message names the connection."""


class PolicyStopError(PermanentError):
    """A policy stops a run, or something forbids a deletion; the message lists what was found and how to go on."""


class TargetMismatchError(PermanentError):
    """A target table does not have the columns or types the changelog needs."""


class SupersededError(PermanentError):
    """A newer run of the window has begun to load into the target: this one would replace rows that it may have repaired."""


class UnrepresentableValueError(PermanentError):
    """A value can't be held by the target without altering it."""


class CommitStateUnknownError(TransientError):
    """The connection broke during a commit: it may or may not have happened. A repeat is safe and finds out."""


class LeaseHeldError(TransientError):
    """Another process deletes from the same claim-check store, or for too long decodes the same input or commits to the
    same lake table. The message names it."""


class LeaseLostError(TransientError):
    """A lease was not renewed in time: others may have taken its holder for dead."""
