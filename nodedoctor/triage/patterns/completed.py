"""Words with which programs and scripts say that they came to their end."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import Event

_MLPERF = r'(?:"key": "(?:run_stop|status)"|\brun_stop: \{).{1,300}"success"'
_TRAINER_RESULT = re.compile(
    r"\btrain_runtime\b|Trainer\.fit` stopped: `max_(?:steps|epochs)"
    rf"|^\W{{0,3}}after training is done\]|{_MLPERF}"
    r"|^\W{0,3}exiting program (?:at iteration|after) \d"
)
"""How trainers report a training that they have done (Hugging Face, Lightning, Megatron, MLPerf).

A script's own "Done" may follow a program that failed."""
PASSED_TESTS = re.compile(r"^=+ (?!.*\b(?:failed|errors?)\b)\d{1,6} passed\b.{0,120} in \d[\d.]*s\b.*=$")
"""The last line of pytest, where all tests passed: what they raised on purpose is above."""
_WORKER_GROUP = re.compile(r"\bworker group successfully finished\b")
"""What torchelastic's agent reports of all its processes (torch/distributed/elastic/agent/server/api.py)."""
_DEEPSPEED = re.compile(r"\[launch\.py:\d+:main\] Process \d+ exits successfully")
"""The same of DeepSpeed's launcher, which says of a process that failed that it kills the others."""
_VERL = re.compile(r"^\W{0,3}Final validation metrics: ")
"""What verl prints of its last step, behind the last checkpoint (verl/trainer/ppo/ray_trainer.py)."""
_RAY_TRAIN = re.compile(r"^\W{0,3}Training completed after \d{1,9} iterations at \d")
"""The same of Ray Train, whose driver then ends its workers (python/ray/tune/experimental/output.py)."""

_EVALUATED = re.compile(r"^\W{0,3}Tasks {0,40}\|Version\|")
"""The heading of the results of lm-eval (lm_eval/utils.py, make_table)."""

OF_ALL_PROCESSES = (PASSED_TESTS, _WORKER_GROUP, _DEEPSPEED)
"""What reports that every test, or every process, came to its end well."""
LAST_RESULTS = (_VERL, _RAY_TRAIN)
"""The last results of drivers that then take down the workers of Ray."""
REPORTS_OF_SUCCESS = (_TRAINER_RESULT, _EVALUATED, *LAST_RESULTS, *OF_ALL_PROCESSES)
"""What a run prints of itself where its work went well."""

_DONE = re.compile(
    r"exit(?:s|ed)? successfully|[Tt]raining (?:job )?(?:is )?(?:completed?|finished|done)"
    r"|[Ff]inished [Tt]raining(?! \w*(?:warm|step|epoch|iter|batch|round|phase|stage|for ))"
    r"|[Dd]one training\b(?! (?:epoch|step|iter|batch|round|phase|stage|for )\w*)|TRAINING COMPLETED?\b"
    r"|[Ee]xit code(?: of \w+)?: 0\b|^exit 0$|error string: no error"
    r"|[Jj]ob (?:completed|finished) success"
    r"|\brank ?[=:]? ?\d+:? finished$|COMPLETED\b.*ExitCode 0|\bCOMPLETED\s{1,30}0:0\b"
    r"|Done!?$"
    r"|_atexit_cleanup\(\):\d+\] got exitcode: 0$"
    r"|Avg bus bandwidth +:|Out of bounds values : 0 OK"
    r"|peak memory consumption"
    r"|^(?:Total (?:[a-z]+ ){0,2}time|Training time)(?: taken| elapsed| cost)?(?: is)?[:= ]{1,4}\d"
)
_FINISHED = re.compile(
    r"\bexiting (?:with |code |status ){0,2}0$|\b[Mm]ax number of steps has been reached\b"
    r"|\b(?:[Rr]un|[Oo]rchestrator|[Tt]rainer) finished(?:, exit|\W{0,3}$)"
    r"|^(?:[\w.]{1,40}: )?(?:[Dd]one: |[Dd]one, |[Dd]one\. |[Dd]one after |[Ff]inished all "
    r"|[Cc]ompleted all )(?:total |all )?\d[\d,]{0,11} (?:training )?"
    r"(?:[Ss]tep|[Ee]poch|[Ii]teration)s\b(?!.{0,9}\d)"
    r"|\bEnd time of running main\b|\bTraining Completed\b"
)
"""The same of MaxText, NeMo, prime-rl, ms-swift and axolotl, and scripts that count what they did."""
_TESTED = re.compile(
    r"\b[Aa]ll (?:tests|benchmarks|experiments) (?:completed|finished|passed)\b"
    r"|^\W*(?:[Pp]ipeline|[Ww]orkflow|[Bb]enchmark) [Cc]ompleted?\W*$"
    r"|\b[Ff]inished evaluation for\b|^&{4} PASSED\b|^\W{0,3}(?:PASSED|DONE)!?\W{0,3}$"
    r"|\b(?:finished|completed|exited) with (?:exit )?(?:code|status) 0\b|[,:] exit (?:code|status) 0$"
)
"""The same of what measures and judges instead of training."""
_OF_SLURM = re.compile(r"\bJobState=COMPLETED\b(?!.*\bExitCode=(?!0:0))|^State: COMPLETED \(exit code 0\)")
"""The same of a whole job, as Slurm keeps it (scontrol show job, seff)."""
_FINAL = re.compile(
    r"\b[Ss]aved (?:the )?final(?:[ _](?:model|checkpoint|weights|adapter)\b|\.[a-z]{1,11}\b)"
    r"|(?:^|[;.,] )[Aa]ll done\W{0,3}$|\breached max_steps\b|\b[Rr]ank ?\d{1,6}:? done$"
)
"""The same of who saves the last model, and of scripts."""
_EVENT = re.compile(
    r"\b(?:train|training)_(?:completed?|finished|done)\b(?![\"']?\s?[:=(\[])(?!.*\bexit code: -?[1-9])"
)
"""The same as the name of an event, as structured loggers have it; behind it may be a code."""
_ALL = re.compile(
    r"\b[Aa]ll (?:tasks|jobs) (?:completed|finished)\b"
    # of a job or of a script, and not of one of its tasks or requests
    r"|^(?:\W*|.{0,60}\b(?:[Jj]ob|[Rr]un|[Tt]raining|[Ll]aunch\w{0,3}|[Ss]cript|[Cc]ommand|\w+\.(?:py|sh))\b[^:]{0,40})"
    r"(?:SUCCEEDED|[Ss]ucceeded) (?:on|at|after|in) (?:the )?(?:\w+ )?(?:try|tries|attempts?|retry)\b"
    r"|^Number of trials: (\d{1,6})(?:/\1)? \(\1 TERMINATED\)"  # Ray Tune
    r"|^Trial status: \d{1,6} TERMINATED\s*$"
    r"|^\S{1,80} exited with code 0$"  # Docker Compose
    r"|\bexited: \S+ \(exit status 0; expected\)"  # supervisord
)
"""The same of launchers, and of scripts that run several programs, or one until it works."""
SUPERVISED = re.compile(
    r"(?:^| -- )Job 'raysubmit_\w+' succeeded$|\bJob \S+ (?:is )?successfully completed\b"
    r"|\b(?:PyTorch|TF|MPI|XGBoost|Paddle|JAX)Job \S+ (?:is )?successfully completed\b"
    r"|\[State Transition\] [A-Z_]+ -> FINISHED\b"  # ray/train/v2/_internal/execution/controller
    r"|\bjobset completed successfully\b|\bMarking task as SUCCESS\b|\bTask exited with return code 0$"
    r"|\b[Jj]ob (?:\S+ ){0,8}\(?status: SUCCEEDED\b|\bReporting training SUCCESS$"
    r"|^(?:LAUNCH INFO .{1,40} )?Pod completed$"
)
"""The same of those that watch over a whole job and may start its parts again (Ray and its Train, Kubeflow,
Airflow, SageMaker, Paddle, SkyPilot)."""
_NOT_YET = r"(?!.{0,20}(?:[EeÉé]po[cq]|etapa|step|轮|エポック|에폭|эпох))"
_OTHER_LANGUAGES = tuple(
    re.compile(f"(?:{words}){_NOT_YET}")
    for words in (
        r"\b(?:[Tt]rein(?:o|amento)|[Ee]ntrenamiento|[Aa]ddestramento)"
        r" (?:conclu|finali[sz]ad|complet|terminad|terminat)\w+",
        r"\b[Ee]ntra[iî]nement (?:est )?(?:termin[ée]|achev[ée]|fini)\b",
        r"\b[Tt]raining (?:ist )?abgeschlossen\b|бучение (?:завершено|закончено)\b",
        r"(?<![轮次段期个批])训练(?:已|已经|全部)?完成",
        r"学習が?完了|학습이? ?완료",
    )
)
"""The same in other languages, in which people write programs of their own; not of one of its epochs.

Only what says that it is complete: scripts say that it ended whatever its end was."""


PATTERNS = (
    _DONE,
    _FINISHED,
    _TESTED,
    _EVENT,
    _OF_SLURM,
    _FINAL,
    _ALL,
    SUPERVISED,
    *REPORTS_OF_SUCCESS,
    *_OTHER_LANGUAGES,
)
"""What `says_done` looks for."""


def says_any(reports: Iterable[re.Pattern[str]], text: str) -> bool:
    """True where a text has one of some reports."""
    return any(report.search(text) for report in reports)


def says_done(text: str) -> bool:
    """True for a line in which a program says that all is done."""
    return says_any(PATTERNS, text)


def is_end_of_training(event: Event[Any]) -> bool:
    """True where a process says that its training came to its end, not some other work."""
    return event.what is Mark.JOB_FINISHED and "rain" in event.text  # train, Train
