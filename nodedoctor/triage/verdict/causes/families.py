"""Kinds of failure by a program's own words, and who then has to act.

Programs and their exceptions are without number, the ways in which they fail to begin are few: a file, a
right, a package, a setting, a server. The words are those of strerror(3), of Python's built-in exceptions,
of the dynamic linker, of shells and of the libraries that read settings and weights.
"""

from __future__ import annotations

import re
from typing import cast

from nodedoctor.record import record
from nodedoctor.text_table import TableRow, table_rows
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
    owner: Owner | None
    cause: Cause
    for_exceptions: bool


def _read_family(row: TableRow) -> ErrorFamily:
    owner, cause = row.flags.get("owner"), row.flags.get("cause", "user_code_exception")
    return ErrorFamily(
        row.name,
        re.compile(row.pattern),
        row.sentence,
        cast("Owner | None", owner),
        cast(Cause, cause),
        "for_exceptions" in row.flags,
    )


_FAMILIES = r"""
not-a-number
  a number was not finite any more
    \bNaN\b|\b[Ll]oss (?:is|=|became) (?:nan|inf)|loss scale already at minimum|[Mm]inimum loss scale
    |\breturned nan values in its \d+th output
    |^FloatingPointError(?!.*\binconsistent between workers\b)
launcher-variable  owner=CONFIG
  a variable that the launcher sets is not set
    KeyError: '(?:SLURM_\w+|(?:LOCAL_|NODE_)?RANK|(?:LOCAL_)?WORLD_SIZE|MASTER_\w+)'
    |environment variable \w+ expected, but not set
access  owner=CONFIG
  a server refused access
    \b40[13] Client Error|Gated\w{0,40}Error|\bgated repo\b|Unauthorized(?: for url)?\b
    |RepositoryNotFoundError
    |\bHTTP(?: Error)? 40[13]\b|[Ii]nvalid (?:API key|credentials|username or token)|AccessDenied\b
busy-server  owner=CONFIG
  a server did not answer
    50\d Server Error|429 Client Error|Read ?[Tt]ime(?:out|d out)|Connection broken
    |HTTP(?:Error)?:? (?:Error )?(?:429|50\d)\b
server  owner=CONFIG
  a server did not answer
    Max retries exceeded|\burlopen error\b|\bCannot connect to host \S+:\d|EndpointConnectionError
    |Connect\w{0,40}Timeout|NameResolutionError|LocalEntryNotFoundError
    |We couldn't connect to 'http|[Oo]utgoing traffic has been disabled|OfflineModeIsEnabled
libraries  owner=CONFIG  cause=version_mismatch  for_exceptions
  libraries that are missing or do not fit each other
    undefined symbol: |cannot open shared object file|cannot find -l\w|undefined reference to
    |version `\S+' not found|[Ee]xec format error|wrong ELF class|invalid ELF header
    |incompatible architecture|DLL load failed|(?:[Uu]nable|[Ff]ailed) to load \S+ library\b
    |numpy\.\w+ size changed|\bLD_LIBRARY_PATH\b|CUDA Setup failed
    |\bConfigured \w{2,8} binary not found\b|\bCUDA VERSION MISMATCH\b|\btoo old to be supported\b
    |(?<!on GPUs with )(?:compute|CUDA) capability\b.{0,60}
    \b(?:not supported|required|at least|too (?:low|old))
build  owner=CONFIG
  code could not be compiled on that node
    Error (?:building|compiling) (?:extension|objects)|Ninja is required|ninja: (?:error|build stopped)
    |CUDA_HOME (?:environment variable )?(?:is not set|does not exist)|ptxas (?:fatal|error)|nvcc fatal
    |CalledProcessError: Command .{0,9}['\"/](?:\S{0,400}[/-])?
    (?:gcc|g\+\+|cc|c\+\+|clang|nvcc|ninja|ptxas)\b
    |[Ff]ailed to find C compiler|fatal error: \S+: No such file or directory|collect2: error
    |CUDAMismatchException
command  owner=CONFIG
  a command that does not exist, or that cannot be read
    Command not found|command not found|\bsh: (?:(?:line )?\d+: )?\S+: not found$
    |unrecognized arguments?:|the following arguments are required
    |invalid choice: |\bargument \S+: |No such option|Missing option|Unknown (?:option|argument|flag)
    |unrecognized option|FLAGS? parsing error|UnrecognizedFlagError|Error parsing (?:arguments|flags)
    |bad interpreter|[Pp]lease specify\b|ArgumentError: |HfArgumentParser
settings  owner=CONFIG
  a setting that is missing, unknown or excluded by another one
    ^(?:omegaconf|hydra|yaml|jsonschema|configparser|toml\w*|voluptuous|cerberus|marshmallow|gin)\.[\w.]*\w:
    |\bpydantic\w{0,40}\.[\w.]{0,80}Valid\w{0,40}Error|validation errors? for \w+
    |Config\w{0,80}(?:Error|Exception)\b|MissingMandatoryValue|is not in struct\b|Missing mandatory value
    |Could not (?:override|load) '|No match in the defaults list|(?:unexpected|duplicate) (?:config )?key
    |mutually exclusive|is incompatible with (?:--|`)|Invalid (?:generic resource|config\w*|value for)
    |[Uu]nable to (?:create step|allocate resources)|[Jj]ob submission failed
    |\bmust be run (?:on|with) at least \d|\b[Yy]ou must (?:first )?(?:call|run|set|specify|provide|pass)\b
    |\brequires? at least \d{1,6} (?:nodes|processes|ranks|tasks|GPUs)
    |Requested node configuration is not available|Unable to layout tasks
# Kubernetes, clouds, SkyPilot, Slurm's QOS
no-capacity  owner=CONFIG
  more was asked for than a quota or a cluster has
    \bexceeded quota: |\bInsufficientInstanceCapacity\b|\bResourcesUnavailableError\b
    |\bResourceLimitExceeded\b|\bQOSMax\w+Limit\b|\bviolates accounting/QOS policy\b
    |\bThere are not enough GPUs available\b
packages  owner=CONFIG
  a package that is missing or of another version
    ^(?:\w+\.)*(?:ModuleNotFoundError|ImportError)\b|No module named |cannot import name[ ]
    |(?:Distribution|Package)NotFound|(?:Contextual)?VersionConflict|PackageNotFoundError
    |(?:is|are) not installed\b|[Pp]lease (?:pip )?(?:install|upgrade|update)\b|\bpip install\b
    |requires? (?:the )?[`'\"]?[\w-]+[`'\"]?(?: library| package)?\s?(?:>=|==|<|version)
incomplete-file  owner=CONFIG
  a file that is not complete
    PytorchStreamReader failed|invalid magic number|unexpected EOF|[Uu]nexpected end of (?:file|data)
    |MetadataIncompleteBuffer|deserializing header|SafetensorError|UnpicklingError|BadZipFile
    |invalid load key|Ran out of input|failed finding central directory|not a (?:zip|gzip) file
    |could not parse ModelProto|ParseFromArray\(serialized|bad checksum|checksum mismatch|BadGzipFile
    |UnidentifiedImageError|(?:truncated|corrupt(?:ed)?) (?:file|header|archive|checkpoint|image|record)
    |(?:file|header|archive|checkpoint|image|record)s?\b.{0,40}\b(?:truncated|corrupt(?:ed)?)\b
code
  a mistake in the program
    \bname '\w+' is not defined|'\w+' object (?:has no attribute|is not \w+able|does not support)
    |unsupported operand type|\b(?:list|tuple|string) index out of range|\bdivision by zero
    |missing \d+ required (?:positional|keyword)|got an unexpected keyword argument
    |values to unpack\b|unhashable type
other-checkpoint  owner=CONFIG
  a checkpoint of another model, or of another split of it
    size mismatch for|in loading state_dict|[Uu]nexpected key\(s\)|Missing key\(s\) in state_dict
    |checkpoint .{0,60}(?:was saved with|does not match)
already-there  owner=CODE
  a file or folder that is there already
    FileExistsError|\bFile exists\b|\[Errno 17\]
# programs try several kinds of devices and go on with another one
device-busy  owner=CONFIG  cause=undetermined
  a device that another process holds
    \balready in use by (?:another )?(?:process|pid)
    |\b[Dd]evice (?:is )?(?:already )?(?:acquired|busy|in use)\b
login  owner=CONFIG
  a login on another node was refused
    Permission denied(?: \((?:publickey|password|gssapi|keyboard)|, please try)
    |Host key verification failed|bad ownership or modes for
rights  owner=CONFIG
  something that this user may not do on that node
    PermissionError|[Pp]ermission denied|Operation not permitted|Read-only file system
no-answer  cause=undetermined
  a process or service that does not answer
    trying to connect|(?:[Ff]ailed|[Uu]nable) to connect|(?:[Cc]ould(?: not|n't)|[Cc]an(?:not|'t)) connect
files  owner=CONFIG
  a file or folder that is not there
    (?:FileNotFound|NotADirectory|IsADirectory)Error|[Nn]o such file or directory
    |(?:file|path|directory|folder|checkpoint|dataset)\b.{0,160}\b(?:does not|doesn't|didn't) exist
    |can't open file|[Cc]annot find (?:file|path|directory)|is not a local folder
    |Can't load (?:tokenizer|the configuration|config|model|weights) for
    |Error no file named|no (?:checkpoint|data files?|files?|images?|samples) (?:was |were )?found
    |FailedToLoad|EmptyDatasetError|DatasetNotFoundError|DataFilesNotFoundError|NOT_FOUND:[ ]
no-address  owner=CONFIG  cause=network_socket_interface
  a host name that does not resolve
    [Nn]ame or service not known|[Tt]emporary failure in name resolution|[Nn]odename nor servname
    |[Cc]ould not resolve host(?:name)?|[Uu]nknown host\b
no-connection  owner=CONFIG  cause=network_socket_interface
  another host or service could not be reached
    [Nn]o route to host|[Nn]etwork is unreachable|[Cc]onnection (?:timed out|refused)
    |ssh: connect to host|[Cc]annot assign requested address
assertion
  the program's own check failed
    Assertion [`'].{1,200}' failed|\b(?:CHECK|Check) failed\b|\bF\d{4} [\d:.]+|panic: |panicked at
"""

FAMILIES = tuple(map(_read_family, table_rows(_FAMILIES)))
"""The first that fits."""


def family_of(text: str) -> ErrorFamily | None:
    """The kind of failure that a line, or an exception as `type: message`, tells of."""
    return next((family for family in FAMILIES if family.expression.search(text)), None)
