"""The tree of errors: what the client can fix (`ClientError`) and what it cannot (`ServerError`).

Every error carries its fields and builds its own message, which says what is wrong and what fixes it.
`container.requests.error_responses` maps the tree to HTTP in one place. No error holds a prompt or a secret.
"""

from handler.errors.base import ClientError as ClientError
from handler.errors.base import EndpointError as EndpointError
from handler.errors.base import ServerError as ServerError
from handler.errors.protocol_errors import BodiesTooLarge as BodiesTooLarge
from handler.errors.protocol_errors import BodyTooLarge as BodyTooLarge
from handler.errors.protocol_errors import ForeignHost as ForeignHost
from handler.errors.protocol_errors import ForeignOrigin as ForeignOrigin
from handler.errors.protocol_errors import HeadersTooLong as HeadersTooLong
from handler.errors.protocol_errors import InvalidRequest as InvalidRequest
from handler.errors.protocol_errors import LineTooLong as LineTooLong
from handler.errors.protocol_errors import MethodNotAllowed as MethodNotAllowed
from handler.errors.protocol_errors import RequestTimedOut as RequestTimedOut
from handler.errors.protocol_errors import RouteNotFound as RouteNotFound
from handler.errors.protocol_errors import TooManyRequests as TooManyRequests
from handler.errors.protocol_errors import UnmetExpectation as UnmetExpectation
from handler.errors.protocol_errors import UnsupportedMediaType as UnsupportedMediaType
from handler.errors.protocol_errors import UpgradeRequired as UpgradeRequired
from handler.errors.request_errors import BodyQuarantined as BodyQuarantined
from handler.errors.request_errors import ContextExceeded as ContextExceeded
from handler.errors.request_errors import InvalidBody as InvalidBody
from handler.errors.request_errors import InvalidField as InvalidField
from handler.errors.request_errors import MissingField as MissingField
from handler.errors.request_errors import ModelNotFound as ModelNotFound
from handler.errors.request_errors import NothingStored as NothingStored
from handler.errors.request_errors import PlainTextOnly as PlainTextOnly
from handler.errors.request_errors import PromptOverLimit as PromptOverLimit
from handler.errors.request_errors import PromptTooLong as PromptTooLong
from handler.errors.request_errors import RequestRefused as RequestRefused
from handler.errors.request_errors import TextTooLong as TextTooLong
from handler.errors.request_errors import UnknownField as UnknownField
from handler.errors.request_errors import UnsupportedField as UnsupportedField
from handler.errors.request_errors import UnsupportedTask as UnsupportedTask
from handler.errors.server_errors import DeadlineExceeded as DeadlineExceeded
from handler.errors.server_errors import Draining as Draining
from handler.errors.server_errors import EngineBusy as EngineBusy
from handler.errors.server_errors import EngineFailed as EngineFailed
from handler.errors.server_errors import GenerationFailed as GenerationFailed
from handler.errors.server_errors import GrammarNotTried as GrammarNotTried
from handler.errors.server_errors import NoDirectory as NoDirectory
from handler.errors.server_errors import NotReady as NotReady
from handler.errors.server_errors import SettingError as SettingError
from handler.errors.server_errors import StartFailed as StartFailed
