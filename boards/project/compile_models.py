# SPDX-License-Identifier: Apache-2.0 OR 0BSD
"""Compiles the models of a PlatformIO project for the board of the environment that is built, before every build.

In platformio.ini:

    [env]
    extra_scripts = pre:PATH/TO/boards/project/compile_models.py
    custom_models =
        kws = models/kws.tflite

Each model becomes a library of the environment, generated/ENVIRONMENT/NAME. An environment whose name is no board of
emitc's names one with custom_emitc_board. custom_emitc_options are further options of `emitc compile`, for all models.
"""

import os
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec

Import("env")  # noqa: F821

project = env["PROJECT_DIR"]  # noqa: F821
name = env["PIOENV"]  # noqa: F821
board = env.GetProjectOption("custom_emitc_board", name)  # noqa: F821
options = shlex.split(env.GetProjectOption("custom_emitc_options", ""))  # noqa: F821
emitc = [sys.executable, "-m", "emitc"] if find_spec("emitc") else [shutil.which("emitc")]
if emitc[-1] is None:
    sys.exit('emitc is not installed: pip install "emitc[boards]"')

env.Append(LIBSOURCE_DIRS=[os.path.join(project, "generated", name)])  # noqa: F821
for line in env.GetProjectOption("custom_models").splitlines():  # noqa: F821
    library, _, model = (part.strip() for part in line.partition("="))
    if not library:
        continue
    folder = os.path.join("generated", name, library)
    what = [model, "--board", board, "--package", "platformio", "--name", library, *options, "-o", folder]
    print("emitc compile", shlex.join(what), flush=True)
    if subprocess.run([*emitc, "compile", *what], cwd=project).returncode != 0:
        sys.exit(1)
