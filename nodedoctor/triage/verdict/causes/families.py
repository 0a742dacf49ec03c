"""Kinds of failure by a program's own words, and who then has to act.

Programs and their exceptions are without number, the ways in which they fail to begin are few: a file, a
right, a package, a setting, a server. The words are those of strerror(3), of Python's built-in exceptions,
of the dynamic linker, of shells and of the libraries that read settings and weights.
"""

from __future__ import annotations

import re

from nodedoctor.record import record
from nodedoctor.triage.model import Cause, Owner


@record
class ErrorFamily:
    """Failures with one first step. `description` is for lines, not for exceptions.

    `owner` None: the program's, or that of the cause. `cause` undetermined: the words do not decide.
    `for_exceptions`: exceptions of the family have its cause, too; else they are the program's.
    """

    name: str
    expression: re.Pattern[str]
    description: str
    owner: Owner | None = "CONFIG"
    cause: Cause = "user_code_exception"
    for_exceptions: bool = False


def _matching_family(
    name: str,
    expression: str,
    description: str,
    owner: Owner | None = "CONFIG",
    cause: Cause = "user_code_exception",
    *,
    for_exceptions: bool = False,
) -> ErrorFamily:
    return ErrorFamily(name, re.compile(expression), description, owner, cause, for_exceptions)


FAMILIES = (
    _matching_family(
        "not-a-number",
        r"\bNaN\b|\b[Ll]oss (?:is|=|became) (?:nan|inf)|loss scale already at minimum|[Mm]inimum loss scale"
        r"|^FloatingPointError",
        "a number was not finite any more",
        None,
    ),
    _matching_family(
        "launcher-variable",
        r"KeyError: '(?:SLURM_\w+|(?:LOCAL_|NODE_)?RANK|(?:LOCAL_)?WORLD_SIZE|MASTER_\w+)'"
        r"|environment variable \w+ expected, but not set",
        "a variable that the launcher sets is not set",
    ),
    _matching_family(
        "access",
        r"\b40[13] Client Error|Gated\w{0,40}Error|\bgated repo\b|Unauthorized(?: for url)?\b"
        r"|RepositoryNotFoundError"
        r"|\bHTTP(?: Error)? 40[13]\b|[Ii]nvalid (?:API key|credentials|username or token)|AccessDenied\b",
        "a server refused access",
    ),
    _matching_family(
        "busy-server",
        r"50\d Server Error|429 Client Error|Read ?[Tt]ime(?:out|d out)|Connection broken"
        r"|HTTP(?:Error)?:? (?:Error )?(?:429|50\d)\b",
        "a server did not answer",
    ),
    _matching_family(
        "server",
        r"Max retries exceeded|Connect\w{0,40}Timeout|NameResolutionError|LocalEntryNotFoundError"
        r"|We couldn't connect to 'http|[Oo]utgoing traffic has been disabled|OfflineModeIsEnabled",
        "a server did not answer",
    ),
    _matching_family(
        "libraries",
        r"undefined symbol: |cannot open shared object file|cannot find -l\w|undefined reference to"
        r"|version `\S+' not found|[Ee]xec format error|wrong ELF class|invalid ELF header"
        r"|incompatible architecture|DLL load failed"
        r"|(?:[Uu]nable|[Ff]ailed) to load \S+ library\b"
        r"|numpy\.\w+ size changed|\bLD_LIBRARY_PATH\b|CUDA Setup failed"
        r"|\btoo old to be supported\b"
        r"|(?<!on GPUs with )(?:compute|CUDA) capability\b.{0,60}"
        r"\b(?:not supported|required|at least|too (?:low|old))",
        "libraries that are missing or do not fit each other",
        "CONFIG",
        "version_mismatch",
        for_exceptions=True,
    ),
    _matching_family(
        "build",
        r"Error (?:building|compiling) (?:extension|objects)|Ninja is required|ninja: (?:error|build stopped)"
        r"|CUDA_HOME (?:environment variable )?(?:is not set|does not exist)|ptxas (?:fatal|error)|nvcc fatal"
        r"|CalledProcessError: Command .{0,9}['\"/](?:\S{0,400}[/-])?"
        r"(?:gcc|g\+\+|cc|c\+\+|clang|nvcc|ninja|ptxas)\b"
        r"|[Ff]ailed to find C compiler|fatal error: \S+: No such file or directory|collect2: error"
        r"|CUDAMismatchException",
        "code could not be compiled on that node",
    ),
    _matching_family(
        "command",
        r"Command not found|command not found|\bsh: (?:(?:line )?\d+: )?\S+: not found$"
        r"|unrecognized arguments?:|the following arguments are required"
        r"|invalid choice: |\bargument \S+: |No such option|Missing option|Unknown (?:option|argument|flag)"
        r"|unrecognized option|FLAGS? parsing error|UnrecognizedFlagError|Error parsing (?:arguments|flags)"
        r"|bad interpreter|[Pp]lease specify\b|ArgumentError: |HfArgumentParser",
        "a command that does not exist, or that cannot be read",
    ),
    _matching_family(
        "settings",
        r"^(?:omegaconf|hydra|yaml|jsonschema|configparser|toml\w*|voluptuous|cerberus|marshmallow|gin)\.[\w.]*\w:"
        r"|\bpydantic\w{0,40}\.[\w.]{0,80}Valid\w{0,40}Error|validation errors? for \w+"
        r"|Config\w{0,80}(?:Error|Exception)\b"
        r"|MissingMandatoryValue|is not in struct\b|Missing mandatory value"
        r"|Could not (?:override|load) '|No match in the defaults list"
        r"|(?:unexpected|duplicate) (?:config )?key"
        r"|mutually exclusive|is incompatible with (?:--|`)|Invalid (?:generic resource|config\w*|value for)"
        r"|[Uu]nable to (?:create step|allocate resources)|[Jj]ob submission failed"
        r"|\bmust be run (?:on|with) at least \d"
        r"|\b[Yy]ou must (?:first )?(?:call|run|set|specify|provide|pass)\b"
        r"|\brequires? at least \d{1,6} (?:nodes|processes|ranks|tasks|GPUs)"
        r"|Requested node configuration is not available|Unable to layout tasks",
        "a setting that is missing, unknown or excluded by another one",
    ),
    _matching_family(
        "packages",
        r"^(?:\w+\.)*(?:ModuleNotFoundError|ImportError)\b|No module named |cannot import name "
        r"|(?:Distribution|Package)NotFound|(?:Contextual)?VersionConflict|PackageNotFoundError"
        r"|(?:is|are) not installed\b|[Pp]lease (?:pip )?(?:install|upgrade|update)\b|\bpip install\b"
        r"|requires? (?:the )?[`'\"]?[\w-]+[`'\"]?(?: library| package)?\s?(?:>=|==|<|version)",
        "a package that is missing or of another version",
    ),
    _matching_family(
        "incomplete-file",
        r"PytorchStreamReader failed|invalid magic number|unexpected EOF|[Uu]nexpected end of (?:file|data)"
        r"|MetadataIncompleteBuffer|deserializing header|SafetensorError|UnpicklingError|BadZipFile"
        r"|invalid load key|Ran out of input|failed finding central directory|not a (?:zip|gzip) file"
        r"|could not parse ModelProto|ParseFromArray\(serialized|bad checksum|checksum mismatch|BadGzipFile"
        r"|UnidentifiedImageError"
        r"|(?:truncated|corrupt(?:ed)?) (?:file|header|archive|checkpoint|image|record)"
        r"|(?:file|header|archive|checkpoint|image|record)s?\b.{0,40}\b(?:truncated|corrupt(?:ed)?)\b",
        "a file that is not complete",
    ),
    _matching_family(
        "code",
        r"\bname '\w+' is not defined|'\w+' object (?:has no attribute|is not \w+able|does not support)"
        r"|unsupported operand type|\b(?:list|tuple|string) index out of range|\bdivision by zero"
        r"|missing \d+ required (?:positional|keyword)|got an unexpected keyword argument"
        r"|values to unpack\b|unhashable type",
        "a mistake in the program",
        None,
    ),
    _matching_family(
        "other-checkpoint",
        r"size mismatch for|in loading state_dict|[Uu]nexpected key\(s\)|Missing key\(s\) in state_dict"
        r"|checkpoint .{0,60}(?:was saved with|does not match)",
        "a checkpoint of another model, or of another split of it",
    ),
    _matching_family(
        "already-there",
        r"FileExistsError|\bFile exists\b|\[Errno 17\]",
        "a file or folder that is there already",
        None,
    ),
    _matching_family(
        "device-busy",
        r"\balready in use by (?:another )?(?:process|pid)"
        r"|\b[Dd]evice (?:is )?(?:already )?(?:acquired|busy|in use)\b",
        "a device that another process holds",
        "CONFIG",
        "undetermined",  # programs try several kinds of devices and go on with another one
    ),
    _matching_family(
        "login",
        r"Permission denied(?: \((?:publickey|password|gssapi|keyboard)|, please try)"
        r"|Host key verification failed|bad ownership or modes for",
        "a login on another node was refused",
    ),
    _matching_family(
        "rights",
        r"PermissionError|[Pp]ermission denied|Operation not permitted|Read-only file system",
        "something that this user may not do on that node",
    ),
    _matching_family(
        "no-answer",
        r"trying to connect|(?:[Ff]ailed|[Uu]nable) to connect"
        r"|(?:[Cc]ould(?: not|n't)|[Cc]an(?:not|'t)) connect",
        "a process or service that does not answer",
        None,
        "undetermined",
    ),
    _matching_family(
        "files",
        r"(?:FileNotFound|NotADirectory|IsADirectory)Error|[Nn]o such file or directory"
        r"|(?:file|path|directory|folder|checkpoint|dataset)\b.{0,160}\b(?:does not|doesn't|didn't) exist"
        r"|can't open file|[Cc]annot find (?:file|path|directory)|is not a local folder"
        r"|Can't load (?:tokenizer|the configuration|config|model|weights) for"
        r"|Error no file named|no (?:checkpoint|data files?|files?|images?|samples) (?:was |were )?found"
        r"|FailedToLoad|EmptyDatasetError|DatasetNotFoundError|DataFilesNotFoundError|NOT_FOUND: ",
        "a file or folder that is not there",
    ),
    _matching_family(
        "no-address",
        r"[Nn]ame or service not known|[Tt]emporary failure in name resolution|[Nn]odename nor servname"
        r"|[Cc]ould not resolve host(?:name)?|[Uu]nknown host\b",
        "a host name that does not resolve",
        "CONFIG",
        "network_socket_interface",
    ),
    _matching_family(
        "no-connection",
        r"[Nn]o route to host|[Nn]etwork is unreachable|[Cc]onnection (?:timed out|refused)"
        r"|ssh: connect to host|[Cc]annot assign requested address",
        "another host or service could not be reached",
        "CONFIG",
        "network_socket_interface",
    ),
    _matching_family(
        "assertion",
        r"Assertion [`'].{1,200}' failed|\b(?:CHECK|Check) failed\b|\bF\d{4} [\d:.]+|panic: |panicked at",
        "the program's own check failed",
        None,
    ),
)
"""The first that fits."""


def family_of(text: str) -> ErrorFamily | None:
    """The kind of failure that a line, or an exception as `type: message`, tells of."""
    return next((family for family in FAMILIES if family.expression.search(text)), None)
